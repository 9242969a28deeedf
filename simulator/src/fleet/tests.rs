use std::collections::BTreeMap;

use coordinator::plan::profile::{Peak, Profile, Weights};
use coordinator::plan::snapshot::{Options, Snapshot};
use shared::model::config;
use shared::units::Micros;

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
        assert!(found.ratio(system) >= 1.0, "{}", found.text());
    }
    assert!(found.ratio(System::Single) > 1.05, "{}", found.text());
    for outcome in &found.outcomes {
        let utilisation = outcome.busy_s / outcome.paid_s;
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
