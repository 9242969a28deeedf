//! What Slurm's commands are told and what they print. Pure. Read from 22.05, in forms that older and newer ones have too.

use shared::ids::NodeName;

use crate::provider::{Kind, Machine, MachineState, ProviderError, Want};

/// Its name.
pub(super) const SLURM: &str = "slurm";

/// Columns asked of `squeue`: id, name, state, comment, partition.
pub const COLUMNS: &str = "%i|%j|%T|%k|%P";

/// States that may still cost time of nodes.
pub const STATES: &str = "PENDING,CONFIGURING,RUNNING,COMPLETING,SUSPENDED";

/// Where jobs go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partitions {
    /// Jobs that may be preempted.
    pub spot: String,
    /// Jobs that are not.
    pub on_demand: String,
}

impl Partitions {
    /// The one of a kind.
    #[must_use]
    pub fn of(&self, kind: Kind) -> &str {
        match kind {
            Kind::Spot => &self.spot,
            Kind::OnDemand => &self.on_demand,
        }
    }
}

/// The comment by which jobs of a cluster are known.
#[must_use]
pub fn comment(cluster: &str) -> String {
    format!("spotmux:{cluster}")
}

/// Arguments of `sbatch` for one machine that runs `command`, told `seconds` before a preemption or its time limit ends it.
#[must_use]
pub fn submit(
    want: &Want,
    partitions: &Partitions,
    cluster: &str,
    log: &str,
    seconds: u64,
    command: &str,
) -> Vec<String> {
    vec![
        "--parsable".into(),
        "--no-requeue".into(),
        format!("--job-name={}", want.token),
        format!("--comment={}", comment(cluster)),
        format!("--partition={}", partitions.of(want.kind)),
        "--nodes=1".into(),
        "--ntasks=1".into(),
        format!("--signal=B:TERM@{seconds}"),
        format!("--output={log}"),
        format!("--wrap=exec {command}"),
    ]
}

/// The id that `sbatch --parsable` prints, `17` or `17;cluster`.
#[must_use]
pub fn submitted(printed: &str) -> Option<String> {
    let id = printed.trim().split(';').next()?;
    (!id.is_empty() && id.bytes().all(|b| b.is_ascii_digit())).then(|| id.to_owned())
}

/// Machines of a cluster in what `squeue` prints in [`COLUMNS`].
#[must_use]
pub fn machines(printed: &str, partitions: &Partitions, cluster: &str) -> Vec<Machine> {
    let own = comment(cluster);
    printed
        .lines()
        .filter_map(|line| {
            let columns: Vec<&str> = line.trim().split('|').collect();
            let [id, name, state, said, partition] = columns[..] else {
                return None;
            };
            if said != own {
                return None;
            }
            Some(Machine {
                id: id.to_owned(),
                token: NodeName::new(name).ok(),
                kind: if partition == partitions.spot {
                    Kind::Spot
                } else {
                    Kind::OnDemand
                },
                state: match state {
                    "PENDING" | "CONFIGURING" => MachineState::Starting,
                    "RUNNING" => MachineState::Running,
                    _ => MachineState::Ending,
                },
                node: None,
            })
        })
        .collect()
}

/// Idle nodes in what `sinfo --format=%t|%D` prints. Those that are powered down or being powered up can be had; those that do not
/// answer (`idle*`) or are held for maintenance (`idle$`) get no work.
#[must_use]
pub fn idle(printed: &str) -> u32 {
    let rows = printed
        .lines()
        .filter_map(|line| line.trim().split_once('|'));
    rows.filter(|(state, _)| state.trim_end_matches(['~', '#']) == "idle")
        .filter_map(|(_, count)| count.parse::<u32>().ok())
        .fold(0, u32::saturating_add)
}

/// What `sbatch` prints where the controller said no: nothing was submitted.
const SUBMISSION: &str = "Batch job submission failed:";
/// What stands there where the controller did not answer, or not in time: it may have taken the job.
const UNANSWERED: [&str; 6] = [
    "Socket timed out",
    "Unable to contact",
    "Zero Bytes",
    "Connection reset",
    "Communication connection failure",
    "Message receive failure",
];

/// What a command that failed says.
#[must_use]
pub fn failed(call: &str, words: &str) -> ProviderError {
    let provider = SLURM.to_owned();
    let why = words.trim().lines().last().unwrap_or_default().to_owned();
    let has = |part: &str| words.contains(part);
    if has("QOSMaxSubmitJob") || has("AssocMaxSubmitJobLimit") || has("Job violates accounting") {
        ProviderError::Quota { provider, why }
    } else if has("Requested node configuration is not available")
        || has("Required node not available")
    {
        ProviderError::NoCapacity { provider, why }
    } else if has("invalid partition")
        || has("Invalid partition")
        || has("Access/permission denied")
        || (has(SUBMISSION) && !UNANSWERED.iter().any(|part| has(part)))
    {
        ProviderError::Refused { provider, why }
    } else {
        ProviderError::Unsure {
            provider,
            call: call.to_owned(),
            why,
        }
    }
}

/// Whether `scancel` only says that the job is gone.
#[must_use]
pub fn is_gone(words: &str) -> bool {
    words.contains("Invalid job id") || words.contains("already completing")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partitions() -> Partitions {
        Partitions {
            spot: "spot".into(),
            on_demand: "firm".into(),
        }
    }

    #[test]
    fn what_is_printed_is_read() {
        assert_eq!(submitted("17\n"), Some("17".into()));
        assert_eq!(submitted("17;here\n"), Some("17".into()));
        assert_eq!(submitted("sbatch: error"), None);
        let printed = "17|m-a-1|RUNNING|spotmux:local|spot\n18|m-a-2|PENDING|spotmux:local|firm\n\
                       19|other|RUNNING|(null)|spot\n20|m-a-3|COMPLETING|spotmux:local|spot\nnoise\n";
        let all = machines(printed, &partitions(), "local");
        let shown: Vec<(&str, Kind, MachineState)> = all
            .iter()
            .map(|one| (one.id.as_str(), one.kind, one.state))
            .collect();
        assert_eq!(
            shown,
            [
                ("17", Kind::Spot, MachineState::Running),
                ("18", Kind::OnDemand, MachineState::Starting),
                ("20", Kind::Spot, MachineState::Ending),
            ]
        );
        let nodes = "idle|3\nalloc|2\nidle~|4\nidle#|1\nidle*|3\nidle$|2\ndown*|1\nmix|1\n";
        assert_eq!(idle(nodes), 8);
        // Another cluster of this user that has the same name.
        let other = "21|m-b-1|RUNNING|spotmux:local-0b0b0b0b|spot\n";
        assert_eq!(machines(other, &partitions(), "local-0a0a0a0a"), []);
    }

    #[test]
    fn errors_are_told_apart() {
        let of = |words: &str| failed("sbatch", words);
        assert!(matches!(
            of(
                "sbatch: error: Batch job submission failed: Required node not available (down, drained or reserved)"
            ),
            ProviderError::NoCapacity { .. }
        ));
        assert!(matches!(
            of("sbatch: error: invalid partition specified: x"),
            ProviderError::Refused { .. }
        ));
        assert!(
            !of("sbatch: error: Unable to contact slurm controller (connect failure)").is_certain()
        );
        for said in [
            "Invalid account or account/partition combination specified",
            "Requested time limit is invalid (missing or exceeds some limit)",
            "User's group not permitted to use this partition",
            "Invalid qos specification",
        ] {
            let error = of(&format!(
                "sbatch: error: Batch job submission failed: {said}"
            ));
            assert!(matches!(error, ProviderError::Refused { .. }), "{error}");
        }
        for said in [
            "Socket timed out on send/recv operation",
            "Unable to contact slurm controller (connect failure)",
            "Zero Bytes were transmitted or received",
        ] {
            let error = of(&format!(
                "sbatch: error: Batch job submission failed: {said}"
            ));
            assert!(!error.is_certain(), "{error}");
        }
        assert!(is_gone(
            "scancel: error: Kill job error on job id 9: Invalid job id specified"
        ));
    }
}
