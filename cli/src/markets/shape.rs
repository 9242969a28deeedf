//! Jobs of a back-test, as arguments describe them.

use std::fs;

use anyhow::Context;
use market_actor::backtest::cell::{Shape, Work};
use market_actor::problem::Reconfigure;
use market_actor::problem::throughput::Throughput;

use crate::args::ShapeArgs;
use crate::exit::{Exit, Failure, OrExit};

/// Machines and slots of the job that loads refer to.
const USUAL: (u32, u32) = (12, 24);
/// The concave curve, for [`USUAL`] machines.
const CONCAVE: (f64, f64) = (0.72, 2.0);

/// Jobs by name, one for each load or the one that is given.
///
/// # Errors
/// When an argument is none.
pub(crate) fn shapes(args: &ShapeArgs) -> Result<Vec<(String, Shape)>, Failure> {
    let usual = |work, soft_deadline, fewest, most| -> Result<Shape, Failure> {
        Ok(Shape {
            work,
            soft_deadline,
            grace: 1.5,
            fewest,
            most,
            throughput: curve(&args.h, most)?,
            reconfigure: Reconfigure {
                grow: args.grow,
                shrink: args.shrink,
                ..Reconfigure::default()
            },
            worth: args.value,
        })
    };
    if let Some(job) = &args.job {
        let (work, slots, fewest, most) = numbers(job)?;
        let shape = usual(Work::Amount(work), slots, fewest, most)?;
        return Ok(vec![(format!("job {job}, H {}", args.h), shape)]);
    }
    args.load
        .iter()
        .map(|load| {
            let shape = usual(Work::Load(*load), USUAL.1, 1, USUAL.0)?;
            Ok((format!("H {}, load {load}", args.h), shape))
        })
        .collect()
}

/// `L,d[,MIN,MAX]`.
fn numbers(job: &str) -> Result<(f64, u32, u32, u32), Failure> {
    let wrong = || {
        let message = format!(
            "--job {job:?}: write work and slots to the deadline, and if wanted fewest and most machines, as 144,24,1,12"
        );
        Failure::new(Exit::Usage, message)
    };
    let parts: Vec<&str> = job.split(',').map(str::trim).collect();
    let whole = |text: &str| text.parse::<u32>().map_err(|_| wrong());
    let (machines, rest) = match &parts[..] {
        [work, slots] => ((1, USUAL.0), (work, slots)),
        [work, slots, fewest, most] => ((whole(fewest)?, whole(most)?), (work, slots)),
        _ => return Err(wrong()),
    };
    let work = rest.0.parse::<f64>().map_err(|_| wrong())?;
    Ok((work, whole(rest.1)?, machines.0, machines.1))
}

fn curve(h: &str, most: u32) -> Result<Throughput, Failure> {
    match h {
        "linear" => Ok(Throughput::per_machine(1.0)),
        "concave" => Ok(Throughput::Affine {
            alpha: CONCAVE.0,
            beta: CONCAVE.1 * f64::from(most) / f64::from(USUAL.0),
        }),
        file => {
            let text = fs::read_to_string(file)
                .with_context(|| format!("--h: cannot read {file}"))
                .or_exit(Exit::BadInput)?;
            let mut points = Vec::new();
            for (at, line) in text.lines().enumerate() {
                let line = line.split('#').next().unwrap_or_default().trim();
                if line.is_empty() {
                    continue;
                }
                let point = line.split_once(',').and_then(|(machines, work)| {
                    Some((machines.trim().parse().ok()?, work.trim().parse().ok()?))
                });
                points.push(point.ok_or_else(|| {
                    let message = format!(
                        "{file}:{}: {line:?} is not \"machines,work of a slot\", such as 4,3.2",
                        at + 1
                    );
                    Failure::new(Exit::BadInput, message)
                })?);
            }
            Throughput::measured(&points)
                .with_context(|| file.to_owned())
                .or_exit(Exit::BadInput)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn args(job: Option<&str>, h: &str) -> ShapeArgs {
        ShapeArgs {
            job: job.map(ToOwned::to_owned),
            load: vec![0.3, 0.7],
            h: h.to_owned(),
            value: 1.5,
            grow: 0.9,
            shrink: 0.95,
        }
    }

    #[test]
    fn loads_are_jobs_and_a_job_is_one() {
        let two = shapes(&args(None, "concave")).unwrap();
        assert_eq!(two.len(), 2);
        assert_eq!(two[1].1.work, Work::Load(0.7));
        let one = shapes(&args(Some("40, 20, 2, 6"), "concave")).unwrap();
        assert_eq!((one[0].1.fewest, one[0].1.most), (2, 6));
        assert_eq!(
            one[0].1.throughput,
            Throughput::Affine {
                alpha: 0.72,
                beta: 1.0
            }
        );
        assert!(shapes(&args(Some("40"), "linear")).is_err());
        assert!(shapes(&args(Some("a,b"), "linear")).is_err());
    }

    #[test]
    fn a_measured_curve_is_read_and_a_bad_line_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("h.csv");
        fs::write(&file, "# measured\n1, 1.0\n4,3.0\n").unwrap();
        let name = file.display().to_string();
        let shape = &shapes(&args(None, &name)).unwrap()[0].1;
        assert_eq!(shape.throughput.at(4), 3.0);
        fs::write(&file, "1,1\nfour\n").unwrap();
        let failure = shapes(&args(None, &name)).unwrap_err();
        assert!(failure.message().contains(":2:"), "{}", failure.message());
        let absent = shapes(&args(None, "no-such-file")).unwrap_err();
        assert_eq!(absent.exit, Exit::NotFound);
    }
}
