//! Every file of the public traces is read, and holds what is known of it.

use std::path::{Path, PathBuf};

use market_actor::feed::{Format, Observed, files};
use shared::units::{MicroUsd, Micros};

/// The folder of the traces, if it is there.
#[expect(
    clippy::disallowed_methods,
    reason = "tests read where the traces are from the environment"
)]
fn folder() -> Option<PathBuf> {
    let named = std::env::var_os("SPOTMUX_TRACES").map(PathBuf::from);
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/traces");
    let folder = named.unwrap_or(beside);
    if folder.join("skypilot-spot-traces").is_dir() {
        return Some(folder);
    }
    println!(
        "NOT RUN: no traces at {}; set SPOTMUX_TRACES to their folder",
        folder.display()
    );
    None
}

fn all_files(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).expect("a folder of traces can be listed");
    let mut entries: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry of it can be read").path())
        .collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            all_files(&path, found);
        } else if !path.ends_with("README.md") {
            found.push(path);
        }
    }
}

fn only(path: &Path) -> Observed {
    let mut pools = files::read(path, None).expect("a trace is read");
    assert_eq!(pools.len(), 1, "{}", path.display());
    pools.remove(0)
}

fn hours(from: Micros, to: Micros) -> f64 {
    to.since(from).seconds() / 3600.0
}

#[test]
fn every_file_is_read_in_the_format_that_it_is_in() {
    let Some(folder) = folder() else { return };
    let mut paths = Vec::new();
    all_files(&folder, &mut paths);
    assert!(paths.len() >= 45, "{}", paths.len());
    for path in paths {
        let text = std::fs::read_to_string(&path).unwrap();
        let place = path.strip_prefix(&folder).unwrap().to_str().unwrap();
        let expected = match place {
            _ if place.starts_with("skypilot") => Format::SkyPilot,
            _ if place.starts_with("aws-spot") => Format::PriceTable,
            _ if place.starts_with("gpu-market") => Format::GpuMarket,
            _ if place.starts_with("parcae") => Format::Parcae,
            _ if place.contains("gcloud") => Format::BambooClock,
            _ if place.contains("aws-2020") => Format::BambooSteps,
            _ => Format::BambooEvents,
        };
        assert_eq!(Format::guess(&text), Some(expected), "{place}");
        let pools = files::read(&path, None).unwrap_or_else(|error| panic!("{error}"));
        assert!(!pools.is_empty(), "{place}");
    }
}

#[test]
fn what_is_known_of_the_files_is_found_in_them() {
    let Some(folder) = folder() else { return };
    let sky = folder.join("skypilot-spot-traces");

    let pool = only(&sky.join("availability/16-node/aws-08-27-2023/us-west-2a_v100_1.json"));
    let steps = pool.spot_available.unwrap();
    assert_eq!(steps.changes().len(), 4736);
    assert_eq!(steps.changes().iter().map(|c| c.1).max(), Some(16));
    assert_eq!(steps.end(), Micros(4736 * 300_000_000));
    assert!(pool.spot_price.is_none());

    let pool = only(&sky.join("preemption/1-node/aws-04-19-2023/us-east-1b_intel_64.json"));
    let prices = pool.spot_price.unwrap();
    let values = prices.changes().iter().map(|change| change.1);
    assert_eq!(values.clone().min(), Some(MicroUsd(1_275_400)));
    assert_eq!(values.max(), Some(MicroUsd(1_410_700)));

    // The same cluster in two formats: events, and running sizes.
    let events = only(&folder.join("bamboo/p3-trace.csv"))
        .spot_available
        .unwrap();
    let sizes = only(&folder.join("parcae/p3-size.csv"))
        .spot_available
        .unwrap();
    assert_eq!(events, sizes);
    assert!((hours(events.start(), events.end()) - 11.4).abs() < 0.1);
    assert_eq!(events.changes().iter().map(|c| c.1).max(), Some(32));

    let clock = only(&folder.join("bamboo/gcloud/v100x1-east1c.txt"));
    assert!(clock.dated);
    let steps = clock.spot_available.unwrap();
    assert!((20.0..48.0).contains(&hours(steps.start(), steps.end())));

    // Times with a point are hours: 2020-11-20 to 2020-11-23 are four days.
    let hourly = folder.join("bamboo/aws-2020/p2-xlarge-2020-11-20-to-2020-11-23.csv");
    let steps = only(&hourly).spot_available.unwrap();
    assert!((72.0..96.0).contains(&hours(steps.start(), steps.end())));

    let old = only(&folder.join("aws-spot-price-2015/g2.2xlarge-us-east-1e.csv"));
    let prices = old.spot_price.unwrap();
    let values = prices.changes().iter().map(|change| change.1);
    assert_eq!(values.clone().min(), Some(MicroUsd(64_100)));
    assert_eq!(values.max(), Some(MicroUsd(5_000_000)));

    let flat = files::read(&folder.join("aws-spot-price-2021/p3.2xlarge.csv"), None).unwrap();
    for pool in flat {
        let prices = pool.spot_price.unwrap();
        assert!(prices.changes().iter().all(|c| c.1 == MicroUsd(918_000)));
    }

    let gpus = only(&folder.join("gpu-market-2025/GH200_96GB.csv"));
    assert_eq!(gpus.spot_price.unwrap().changes().len(), 752);
}
