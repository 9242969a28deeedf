//! Arrivals: read from traces, or drawn.
//!
//! | function | from | scaling |
//! | --- | --- | --- |
//! | [`philly`] | one file a virtual cluster (`arrival_s, ...`), runtimes apart (`runtime_s`) | arrivals of all clusters together are sped up to a rate, and begin again when they end; runtimes are dealt at random |
//! | [`alibaba`] | pods (`..., creation_time, deletion_time, ...`) | the same; a pod's own lifetime |
//! | [`generated`] | a seed | exponential gaps, log-normal runtimes of a mean and a deviation |

use thiserror::Error;

use super::limits::{self, BadSetting};
use crate::dice::Dice;

/// A job to come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Seconds from the start.
    pub at_s: u64,
    /// Who sends it.
    pub tenant: String,
    /// Seconds that it trains alone.
    pub runtime_s: u64,
}

/// Why a trace cannot be read.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum BadTrace {
    /// The first line does not name the column.
    #[error("{file} has no column {column}")]
    Column {
        /// The file.
        file: String,
        /// The column.
        column: &'static str,
    },
    /// A line whose number is none.
    #[error("{file}, line {line}: {text:?} in column {column} is not a number")]
    Number {
        /// The file.
        file: String,
        /// From 1.
        line: usize,
        /// The column.
        column: &'static str,
        /// What stands there.
        text: String,
    },
    /// A number that no trace in seconds has.
    #[error(
        "{file}, line {line}: {text} in column {column} is more than {most} seconds: is the unit right?"
    )]
    Huge {
        /// The file.
        file: String,
        /// From 1.
        line: usize,
        /// The column.
        column: &'static str,
        /// What stands there.
        text: String,
        /// The limit.
        most: u64,
    },
    /// Nothing in it.
    #[error("{file} has no jobs")]
    Empty {
        /// The file.
        file: String,
    },
}

/// The numbers of one column, by line; where it is empty, nothing.
fn column(file: &str, text: &str, column: &'static str) -> Result<Vec<Option<u64>>, BadTrace> {
    let mut lines = text.lines();
    let head = lines.next().unwrap_or_default();
    let Some(at) = head.split(',').position(|name| name.trim() == column) else {
        return Err(BadTrace::Column {
            file: file.to_owned(),
            column,
        });
    };
    let mut numbers = Vec::new();
    for (index, line) in lines.enumerate().filter(|(_, line)| !line.is_empty()) {
        let field = line.split(',').nth(at).unwrap_or_default().trim();
        let number = field
            .parse::<f64>()
            .ok()
            .filter(|n| n.is_finite() && *n >= 0.0);
        if number.is_none() && !field.is_empty() {
            return Err(BadTrace::Number {
                file: file.to_owned(),
                line: index + 2,
                column,
                text: field.to_owned(),
            });
        }
        if number.is_some_and(|number| number > limits::SECONDS as f64) {
            return Err(BadTrace::Huge {
                file: file.to_owned(),
                line: index + 2,
                column,
                text: field.to_owned(),
                most: limits::SECONDS,
            });
        }
        numbers.push(number.map(|number| number as u64));
    }
    Ok(numbers)
}

/// The speed at which jobs come, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Jobs in 100 minutes.
    pub per_100_minutes: u64,
    /// Seconds.
    pub horizon_s: u64,
}

impl Pace {
    /// So many jobs an hour, for so many hours.
    ///
    /// # Errors
    /// [`BadSetting::TooMuch`] when more would come than are simulated.
    pub fn new(jobs_per_hour: f64, hours: u64) -> Result<Self, BadSetting> {
        let jobs = (jobs_per_hour * hours as f64).ceil() as u64;
        let remedy = "lower --jobs-per-hour or --hours";
        // Drawn arrivals come to a little more or less than their mean.
        limits::within("jobs", jobs, limits::JOBS - limits::JOBS / 20, remedy)?;
        Ok(Self {
            per_100_minutes: ((jobs_per_hour * 100.0 / 60.0).round() as u64).max(1),
            horizon_s: hours.saturating_mul(3_600),
        })
    }
}

/// Philly: tenants with the text of their file, and the text of the runtimes.
///
/// # Errors
/// [`BadTrace`] with the file, line and column.
pub fn philly(
    clusters: &[(String, String)],
    runtimes: &str,
    pace: Pace,
    seed: u64,
) -> Result<Vec<Arrival>, BadTrace> {
    let mut raw = Vec::new();
    for (tenant, text) in clusters {
        let arrivals = column(tenant, text, "arrival_s")?;
        raw.extend(
            arrivals
                .into_iter()
                .flatten()
                .map(|at| (at, tenant.clone())),
        );
    }
    let runtimes: Vec<u64> = column("runtime_s.csv", runtimes, "runtime_s")?
        .into_iter()
        .flatten()
        .filter(|runtime| *runtime > 0)
        .collect();
    if runtimes.is_empty() {
        return Err(BadTrace::Empty {
            file: "runtime_s.csv".into(),
        });
    }
    let mut dice = Dice::new(seed);
    let jobs = raw.into_iter().map(|(at, tenant)| {
        let runtime = runtimes[dice.below(runtimes.len() as u64) as usize];
        (at, tenant, runtime)
    });
    paced("philly", jobs.collect(), pace)
}

/// Alibaba: the text of the list of pods. Pods that ask for no GPU are left out; the quality class is the tenant.
///
/// # Errors
/// [`BadTrace`] with the file, line and column.
pub fn alibaba(pods: &str, pace: Pace) -> Result<Vec<Arrival>, BadTrace> {
    let file = "openb_pod_list_default.csv";
    let created = column(file, pods, "creation_time")?;
    let deleted = column(file, pods, "deletion_time")?;
    let gpus = column(file, pods, "num_gpu")?;
    let head = pods.lines().next().unwrap_or_default();
    let class = head.split(',').position(|name| name == "qos");
    let classes = pods.lines().skip(1).filter(|line| !line.is_empty());
    let classes = classes.map(|line| {
        class
            .and_then(|at| line.split(',').nth(at))
            .unwrap_or("pod")
    });
    let jobs = created.iter().zip(&deleted).zip(&gpus).zip(classes);
    let jobs = jobs.filter_map(|(((created, deleted), gpus), class)| {
        let (created, deleted) = ((*created)?, (*deleted)?);
        let runtime = deleted.saturating_sub(created);
        (gpus.unwrap_or(0) > 0 && runtime > 0).then(|| (created, class.to_owned(), runtime))
    });
    paced(file, jobs.collect(), pace)
}

/// Speeds arrivals up (or slows them down) to a pace, and repeats them to the horizon.
fn paced(
    file: &str,
    mut raw: Vec<(u64, String, u64)>,
    pace: Pace,
) -> Result<Vec<Arrival>, BadTrace> {
    raw.sort();
    let (Some(first), Some(last)) = (raw.first(), raw.last()) else {
        return Err(BadTrace::Empty {
            file: file.to_owned(),
        });
    };
    let (begin, span) = (first.0, (last.0 - first.0).max(1));
    // All of them take this long at the pace.
    let round = (raw.len() as u64 * 6_000)
        .div_ceil(pace.per_100_minutes.max(1))
        .max(1);
    let mut arrivals = Vec::new();
    let mut offset = 0;
    while offset < pace.horizon_s {
        for (at, tenant, runtime_s) in &raw {
            let scaled = u128::from(at - begin) * u128::from(round) / u128::from(span);
            let at_s = offset + scaled as u64;
            if at_s < pace.horizon_s {
                arrivals.push(Arrival {
                    at_s,
                    tenant: tenant.clone(),
                    runtime_s: *runtime_s,
                });
            }
        }
        offset += round;
    }
    Ok(arrivals)
}

/// Drawn arrivals: exponential gaps; log-normal runtimes with a mean and a standard deviation, in seconds.
#[must_use]
pub fn generated(
    pace: Pace,
    mean_s: u64,
    deviation_s: u64,
    tenants: u64,
    seed: u64,
) -> Vec<Arrival> {
    let mut dice = Dice::new(seed);
    let gap = 6_000.0 / pace.per_100_minutes.max(1) as f64;
    let variance = (1.0 + (deviation_s as f64 / mean_s.max(1) as f64).powi(2)).ln();
    let middle = (mean_s.max(1) as f64).ln() - variance / 2.0;
    let (mut at, mut arrivals) = (0.0, Vec::new());
    loop {
        at -= gap * unit(&mut dice).ln();
        if at >= pace.horizon_s as f64 {
            return arrivals;
        }
        let radius = (-2.0 * unit(&mut dice).ln()).sqrt();
        let normal = radius * (std::f64::consts::TAU * unit(&mut dice)).cos();
        let runtime = (middle + variance.sqrt() * normal).exp();
        arrivals.push(Arrival {
            at_s: at as u64,
            tenant: format!("tenant-{}", dice.below(tenants.max(1))),
            runtime_s: (runtime as u64).clamp(1, limits::SECONDS),
        });
    }
}

/// A number in (0, 1).
pub(super) fn unit(dice: &mut Dice) -> f64 {
    (dice.below(1 << 53) as f64 + 0.5) / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Pace = Pace {
        per_100_minutes: 259,
        horizon_s: 36_000,
    };

    #[test]
    fn clusters_are_sped_up_and_repeated() {
        let a = ("a".to_owned(), "arrival_s,gpus\n0,1\n100,2\n".to_owned());
        let b = ("b".to_owned(), "arrival_s,gpus\n50,1\n".to_owned());
        let jobs = philly(&[a, b], "runtime_s\n0\n60\n", PACE, 1).expect("a trace");
        let per_hour = jobs.len() as u64 / 10;
        assert!(per_hour.abs_diff(155) <= 3, "{per_hour} an hour");
        assert!(jobs.is_sorted_by_key(|job| job.at_s));
        assert!(jobs.iter().all(|job| job.runtime_s == 60));
        assert!(jobs.iter().any(|job| job.tenant == "b"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let bad = ("vc".to_owned(), "arrival_s\n0\nx\n".to_owned());
        let said = philly(&[bad], "runtime_s\n1\n", PACE, 1).expect_err("x is no number");
        assert_eq!(
            said.to_string(),
            "vc, line 3: \"x\" in column arrival_s is not a number"
        );
        let said = alibaba("name,creation_time\n", PACE).expect_err("a column is missing");
        assert!(said.to_string().contains("deletion_time"));
    }

    #[test]
    fn pods_without_gpus_are_left_out() {
        let pods = "name,num_gpu,qos,creation_time,deletion_time\na,1,LS,0,90\nb,0,LS,10,90\nc,2,BE,40,\nd,1,BE,50,60\n";
        let jobs = alibaba(pods, PACE).expect("a trace");
        assert!(
            jobs.iter()
                .all(|job| job.runtime_s == 90 || job.runtime_s == 10)
        );
    }

    #[test]
    fn drawn_arrivals_have_their_mean() {
        let pace = Pace {
            per_100_minutes: 259,
            horizon_s: 604_800,
        };
        let jobs = generated(pace, 22_356, 36_774, 8, 3);
        assert!((jobs.len() as u64).abs_diff(26_107) < 600, "{}", jobs.len());
        let mean = jobs.iter().map(|job| job.runtime_s).sum::<u64>() / jobs.len() as u64;
        assert!(mean.abs_diff(22_356) < 1_500, "{mean}");
        assert_eq!(jobs, generated(pace, 22_356, 36_774, 8, 3));
    }
}
