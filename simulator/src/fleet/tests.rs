use std::collections::BTreeMap;

use coordinator::plan::profile::{Peak, Profile, Weights};
use coordinator::plan::snapshot::{Options, Snapshot};
use shared::model::config;
use shared::units::Micros;

use super::instance::{Company, Oracle};
use super::trace::{Pace, generated};
use super::*;

fn setting(gpus: usize, hours: u64) -> Setting {
    let text = r#"{"model_type":"llama","num_hidden_layers":32,"hidden_size":4096,"num_attention_heads":32,
        "num_key_value_heads":32,"vocab_size":32000,"intermediate_size":11008,"max_position_embeddings":4096,
        "rms_norm_eps":1e-5}"#;
    let profile = Profile::peak(&Peak::A40);
    let link = |name: &str| profile.link(name).cloned().expect("a link");
    Setting {
        base: Snapshot {
            model: config::parse(text).expect("a configuration that parses"),
            blocks: Weights::Bf16,
            tables: Weights::Bf16,
            profiles: BTreeMap::new(),
            nodes: BTreeMap::new(),
            inside: link("inside"),
            between: link("between"),
            tasks: BTreeMap::new(),
            tenants: BTreeMap::new(),
            options: Options::default(),
            now: Micros(0),
        },
        profile,
        gpus,
        width: Some(1),
        micro_batches: None,
        horizon_s: hours * 3_600,
        losses: Losses::default(),
        price: 390_000,
        seed: 7,
    }
}

fn few(setting: &Setting, per_100_minutes: u64, mix: &Mix) -> Vec<Job> {
    let pace = Pace {
        per_100_minutes,
        horizon_s: setting.horizon_s,
    };
    jobs(
        generated(pace, 3_600, 3_600, 3, setting.seed),
        mix,
        setting.seed,
    )
}

#[test]
fn sharing_a_backbone_trains_more_than_not() {
    let setting = setting(4, 24);
    let mix = Mix::paper(false);
    let jobs = few(&setting, 60, &mix);
    let found = compare(&setting, &mix, &jobs, "drawn").expect("it fits");
    for system in [System::Single, System::Spatial, System::Temporal] {
        let ratio = found.ratio(system).expect("both train");
        assert!(ratio >= 1.0, "{}", found.text());
    }
    assert!(found.ratio(System::Single) > Some(1.05), "{}", found.text());
    for outcome in &found.outcomes {
        let utilisation = outcome.utilisation();
        assert!((0.0..=1.0).contains(&utilisation), "{}", found.text());
        assert!(outcome.ended.len() + outcome.waiting <= outcome.came);
        assert!(
            outcome
                .ended
                .iter()
                .all(|job| job.whole_s + 1 >= job.waited_s + job.trained_s)
        );
    }
    let text = found.text();
    assert!(text.contains("not measured") && text.contains("1.61"));
    let json = found.json();
    assert_eq!(json["systems"].as_array().map(Vec::len), Some(4));
    let picture = svg(&found);
    assert!(picture.starts_with("<svg") && picture.ends_with("</svg>\n"));
    assert_eq!(
        compare(&setting, &mix, &jobs, "drawn").expect("it fits"),
        found
    );
}

#[test]
fn alone_a_job_takes_what_its_trace_says() {
    let mut setting = setting(2, 24);
    setting.losses.per_kilohour = 0;
    let mix = Mix::paper(true);
    let jobs = few(&setting, 10, &mix);
    let outcome = run(&setting, &mix, &jobs, System::Single).expect("it fits");
    assert!(!outcome.ended.is_empty() && outcome.losses == 0);
    for job in &outcome.ended {
        assert!(job.trained_s.abs_diff(job.alone_s) <= 1, "{job:?}");
    }
}

/// Jobs that share a pipeline see rounds that overlap; one that is alone on it does not.
#[test]
fn a_pipeline_of_several_jobs_counts_steady_rounds() {
    let mut setting = setting(4, 24);
    setting.width = Some(4);
    let mix = Mix::paper(true);
    for (system, jobs, overlaps) in [
        (System::Spotmux, 8, true),
        (System::Temporal, 8, true),
        (System::Spotmux, 1, false),
        (System::Single, 1, false),
        (System::Spatial, 8, false),
    ] {
        let mut oracle = Oracle::new(&setting, &mix, system, 4).expect("it fits");
        let company = Company::from([(0, jobs)]);
        let pace = oracle.pace(&company).expect("it fits");
        let step = oracle.step_by_itself(&company);
        let step = step.unwrap_or(pace.step);
        assert_eq!(pace.step < step, overlaps, "{system:?}: {pace:?}, {step}");
        assert!(pace.step <= step && pace.busy <= 4 * pace.step);
    }
}

#[test]
fn losses_cost_time_and_no_job() {
    let mut setting = setting(4, 48);
    let mix = Mix::paper(true);
    let jobs = few(&setting, 20, &mix);
    setting.losses.per_kilohour = 0;
    let quiet = run(&setting, &mix, &jobs, System::Spotmux).expect("it fits");
    setting.losses.per_kilohour = 500;
    let rough = run(&setting, &mix, &jobs, System::Spotmux).expect("it fits");
    assert!(rough.losses > 10 && quiet.losses == 0);
    let trained = |outcome: &Outcome| outcome.ended.iter().map(|job| job.trained_s).sum::<u64>();
    assert!(trained(&rough) > trained(&quiet) || rough.ended.len() < quiet.ended.len());
    assert!(rough.ended.len() + rough.waiting <= rough.came);
}

#[test]
fn each_system_has_its_best_width() {
    let mut setting = setting(8, 1);
    setting.width = None;
    let mix = Mix::paper(true);
    for system in System::ALL {
        let width = best_width(&setting, &mix, system).expect("it fits");
        assert!(WIDTHS.contains(&width));
    }
    // A backbone that one GPU does not hold takes more.
    setting.profile.memory_bytes = 14_000_000_000;
    let width = best_width(&setting, &mix, System::Single).expect("it fits two");
    assert!(width > 1, "{width}");
}

#[test]
fn what_is_too_much_is_refused_with_its_limit() {
    let said = |setting: &Setting, jobs: usize| {
        let refused = setting.check(jobs).expect_err("too much");
        refused.to_string()
    };
    let plain = setting(4, 24);
    assert_eq!(plain.check(1_000), Ok(()));
    let mut wide = plain.clone();
    (wide.gpus, wide.width) = (2, Some(3));
    assert!(said(&wide, 1).contains("3 GPUs does not come together of 2"));
    let mix = Mix::paper(true);
    assert!(matches!(
        run(&wide, &mix, &[], System::Spotmux),
        Err(BadSetting::NoInstance { .. })
    ));
    assert!(said(&plain, 10_000_000).contains("250000"));
    let mut lossy = plain.clone();
    lossy.losses.per_kilohour = u64::MAX;
    assert!(said(&lossy, 1).contains("lower --losses"));
    let mut long = plain;
    long.gpus = 1 << 20;
    assert!(said(&long, 1).contains("GPU hours"));
    for rate in [1e300, f64::MAX] {
        let refused = Pace::new(rate, 168).expect_err("too many");
        assert!(refused.to_string().contains("--jobs-per-hour"), "{refused}");
    }
    assert!(Pace::new(155.4, 168).is_ok());
}

#[test]
fn without_a_job_nothing_is_divided_by_nothing() {
    let setting = setting(2, 2);
    let found = compare(&setting, &Mix::paper(true), &[], "none").expect("it fits");
    assert_eq!(found.ratio(System::Single), None);
    let text = found.text();
    assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    assert!(!found.json().to_string().contains("NaN"));
}

#[test]
fn a_trace_of_absurd_numbers_is_refused_or_simulated() {
    let pace = Pace {
        per_100_minutes: 100,
        horizon_s: 3_600,
    };
    let arrivals = ("vc".to_owned(), "arrival_s\n0\n1e18\n".to_owned());
    let said = trace::philly(&[arrivals], "runtime_s\n60\n", pace, 1)
        .expect_err("thirty years")
        .to_string();
    assert!(
        said.contains("vc, line 3") && said.contains("1000000000"),
        "{said}"
    );
    let arrivals = ("vc".to_owned(), "arrival_s\n0\n".to_owned());
    let jobs_of = |runtime: &str| {
        let runtimes = format!("runtime_s\n{runtime}\n");
        trace::philly(std::slice::from_ref(&arrivals), &runtimes, pace, 1)
    };
    assert!(jobs_of("1e300").is_err());
    let mix = Mix::paper(true);
    let long = jobs(jobs_of("1e9").expect("thirty years"), &mix, 1);
    let outcome = run(&setting(2, 1), &mix, &long, System::Spotmux).expect("it fits");
    assert!(outcome.ended.is_empty());
}

#[test]
fn instances_stay_in_their_order_under_losses() {
    let mut setting = setting(12, 48);
    setting.losses.per_kilohour = 2_000;
    let mix = Mix::paper(false);
    let jobs = few(&setting, 40, &mix);
    let outcome = run(&setting, &mix, &jobs, System::Single).expect("it fits");
    assert!(outcome.losses > 100);
    // One job to an instance: never more at work than instances.
    assert!(
        outcome
            .looked
            .iter()
            .all(|(jobs, _)| jobs.iter().all(|count| *count <= 1))
    );
}
