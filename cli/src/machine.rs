//! What the system says about memory and processor time: read from `/proc` and the control group on Linux.

use std::fs;
use std::path::{Path, PathBuf};

/// Memory that may still be used, and what bounds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Available {
    /// Bytes.
    pub(crate) bytes: u64,
    /// Where the bound comes from.
    pub(crate) bound: &'static str,
}

/// Memory of this process in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    /// Its own pages and its share of shared ones.
    pub(crate) proportional: u64,
    /// Pages that no file stands behind.
    pub(crate) anonymous: u64,
}

/// Memory that may still be used; `None` where the system does not say.
pub(crate) fn available() -> Option<Available> {
    available_under(Path::new("/"))
}

fn available_under(root: &Path) -> Option<Available> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let free = field(&text, "MemAvailable:")? * 1024;
    let machine = Available {
        bytes: free,
        bound: "free memory of the machine",
    };
    match group(root) {
        Some(bytes) if bytes < free => Some(Available {
            bytes,
            bound: "limit of the control group",
        }),
        _ => Some(machine),
    }
}

/// What the tightest control group above this process leaves.
fn group(root: &Path) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let number =
        |path: PathBuf| -> Option<u64> { fs::read_to_string(path).ok()?.trim().parse().ok() };
    let mut tightest: Option<u64> = None;
    for line in text.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let (base, limit, usage) = match controllers {
            "" => ("sys/fs/cgroup", "memory.max", "memory.current"),
            list if list.split(',').any(|name| name == "memory") => (
                "sys/fs/cgroup/memory",
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
            ),
            _ => continue,
        };
        let top = root.join(base);
        let mut folder = top.join(path.trim_start_matches('/'));
        // A container sees its own group as the root, whatever /proc says its path is.
        while folder.starts_with(&top) {
            if let (Some(limit), Some(used)) =
                (number(folder.join(limit)), number(folder.join(usage)))
            {
                let cache = inactive_file(&folder);
                let left = limit.saturating_sub(used.saturating_sub(cache));
                tightest = Some(tightest.map_or(left, |found| found.min(left)));
            }
            if !folder.pop() {
                break;
            }
        }
    }
    tightest
}

/// Page cache that a group would give back before it is out of memory.
fn inactive_file(folder: &Path) -> u64 {
    let text = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    field(&text, "inactive_file")
        .or_else(|| field(&text, "total_inactive_file"))
        .unwrap_or(0)
}

/// Memory this process has now.
pub(crate) fn memory() -> Option<Memory> {
    let text = fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    Some(Memory {
        proportional: field(&text, "Pss:")? * 1024,
        anonymous: field(&text, "Anonymous:")? * 1024,
    })
}

/// Memory of another process: its own pages and its share of shared ones.
pub(crate) fn proportional_of(process: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/smaps_rollup")).ok()?;
    Some(field(&text, "Pss:")? * 1024)
}

/// Most resident memory since the start, in bytes.
pub(crate) fn peak_resident() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    Some(field(&text, "VmHWM:")? * 1024)
}

/// Processor time of all threads so far, user and system, in milliseconds.
pub(crate) fn processor_ms() -> Option<u64> {
    cpu_ticks(&fs::read_to_string("/proc/self/stat").ok()?).map(|ticks| ticks * TICK_MS)
}

/// Processes that wanted a core, on average of the last minute.
pub(crate) fn load_average() -> Option<f64> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    text.split_ascii_whitespace().next()?.parse().ok()
}

/// The kernel shows times in hundredths of a second, whatever its own clock is.
const TICK_MS: u64 = 10;

fn cpu_ticks(stat: &str) -> Option<u64> {
    // The name in parentheses may hold spaces and parentheses itself.
    let after = stat.rsplit_once(')')?.1;
    let mut fields = after.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

/// The number after a name at the start of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn processor_time_is_read_past_an_odd_name() {
        let stat = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 9 0 100 1 2";
        assert_eq!(cpu_ticks(stat), Some(300));
        assert_eq!(cpu_ticks("nonsense"), None);
    }

    #[test]
    fn the_tightest_group_counts() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        write(
            root,
            "proc/meminfo",
            "MemTotal: 9000 kB\nMemAvailable:    8000 kB\n",
        );
        assert_eq!(available_under(root).unwrap().bytes, 8000 * 1024);
        write(root, "proc/self/cgroup", "0::/a/b\n");
        write(root, "sys/fs/cgroup/a/b/memory.max", "max\n");
        write(root, "sys/fs/cgroup/a/b/memory.current", "1000\n");
        assert_eq!(available_under(root).unwrap().bytes, 8000 * 1024);
        write(root, "sys/fs/cgroup/a/memory.max", "5000000\n");
        write(root, "sys/fs/cgroup/a/memory.current", "3000000\n");
        write(
            root,
            "sys/fs/cgroup/a/memory.stat",
            "anon 5\ninactive_file 500000\n",
        );
        let found = available_under(root).unwrap();
        assert_eq!(
            (found.bytes, found.bound),
            (2_500_000, "limit of the control group")
        );
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_has_memory_and_time() {
        assert!(memory().unwrap().proportional > 0);
        assert!(peak_resident().unwrap() > 0);
        assert!(processor_ms().is_some());
        assert!(available().unwrap().bytes > 0);
    }
}
