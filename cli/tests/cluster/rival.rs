//! A second coordinator on the same journal: it waits while the first one renews its lease, leads when that is silent for
//! longer, and the first writes nothing more.

use std::fs;
use std::process::{Child, Command};

use serde_json::Value;

use super::run::{Cluster, Places, Sandbox, assert_same};

/// The other coordinator: the same file, at other places.
struct Rival<'a> {
    sandbox: &'a Sandbox,
    places: [String; 2],
    process: Child,
}

impl<'a> Rival<'a> {
    fn start(sandbox: &'a Sandbox) -> Self {
        let free = Places::free(0);
        let places = [
            format!("coordinator.listen={}", free.coordinator),
            format!("coordinator.metrics={}", free.metrics),
        ];
        let log = fs::File::create(sandbox.path().join("rival.log")).unwrap();
        let mut command = Self::command(sandbox, &places, "coordinator");
        let process = command.stderr(log).spawn().unwrap();
        Self {
            sandbox,
            places,
            process,
        }
    }

    fn command(sandbox: &Sandbox, places: &[String; 2], word: &str) -> Command {
        let [listen, metrics] = places;
        sandbox.command(&[word, "--set", listen, "--set", metrics])
    }

    fn said(&self, words: &str) -> Option<()> {
        let log = fs::read_to_string(self.sandbox.path().join("rival.log")).ok()?;
        log.contains(words).then_some(())
    }

    /// How often it found the journal held by a process that was stopped in the middle of a write.
    fn shut_out(&self) -> usize {
        let log = fs::read_to_string(self.sandbox.path().join("rival.log"));
        log.unwrap_or_default()
            .matches("in the middle of a write")
            .count()
    }

    /// Jobs that it knows of, if it answers.
    fn jobs(&self) -> Option<usize> {
        let mut command = Self::command(self.sandbox, &self.places, "jobs");
        let ran = command.args(["--all", "--json"]).output().unwrap();
        let text = String::from_utf8_lossy(&ran.stdout).into_owned();
        let told: Value = serde_json::from_str(text.lines().last()?).ok()?;
        let jobs = told.get("jobs").unwrap_or(&told);
        Some(jobs.as_array()?.len())
    }
}

impl Drop for Rival<'_> {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What the coordinators that `up` started said, one after another.
fn first_said(sandbox: &Sandbox, words: &str) -> Option<()> {
    let log = sandbox.path().join(".spotmux/logs/coordinator.log");
    let log = fs::read_to_string(log).ok()?;
    log.contains(words).then_some(())
}

#[test]
fn a_rival_leads_only_when_the_lease_is_not_renewed_and_who_led_before_writes_nothing_more() {
    let sandbox = Sandbox::new(8);
    let wanted = sandbox.alone();
    let mut cluster = Cluster::start(&sandbox, 2, 2);
    cluster.submit();
    cluster.until_step(20);

    // While the first one renews its lease, the other waits, and nobody is disturbed.
    let rival = Rival::start(&sandbox);
    cluster.until("the rival waits", |_| rival.said("waiting for the lease"));
    let taken = cluster.steps().unwrap();
    cluster.until_step(taken + 20);
    assert_eq!(rival.said("coordinator at work"), None);

    // The first one is stopped: when its lease was unchanged for 3 s the other leads, with all that is in the journal.
    assert!(cluster.signal("coordinator", "-STOP"));
    let mut shut_out = 0;
    cluster.until("the rival leads", |cluster| {
        // It was stopped in the middle of a write: it goes on for as long as an answer takes, and is stopped again.
        if rival.shut_out() > shut_out {
            shut_out = rival.shut_out();
            assert!(cluster.signal("coordinator", "-CONT"));
            let _answered = cluster.steps();
            assert!(cluster.signal("coordinator", "-STOP"));
        }
        rival.said("coordinator at work")
    });
    cluster.until("the rival answers", |_| {
        rival.jobs().filter(|jobs| *jobs == 8).map(|_| ())
    });

    // It goes on, finds that another leads, and ends before it wrote anything; its successor waits in its turn.
    assert!(cluster.signal("coordinator", "-CONT"));
    let fenced = "the lease of term t1 was taken over: nothing was written";
    cluster.until("the first one is fenced", |_| first_said(&sandbox, fenced));
    cluster.until("its successor waits", |_| {
        first_said(&sandbox, "waiting for the lease")
    });
    drop(rival);
    assert_same(&cluster.adapters(), &wanted);

    // Three leaderships, each with the next term, and no record of an earlier one after a later one began.
    let events = cluster.events();
    let kinds = events.iter().filter_map(|event| event["event"].as_str());
    let began: Vec<usize> = kinds
        .enumerate()
        .filter(|(_, kind)| *kind == "leadership_began")
        .map(|(at, _)| at)
        .collect();
    assert_eq!(began.len(), 3, "{began:?}");
    let terms: Vec<&Value> = began
        .iter()
        .map(|at| &events[*at]["data"]["term"])
        .collect();
    assert_eq!(terms, [&Value::from(1), &Value::from(2), &Value::from(3)]);
    let of_the_rival = &events[began[1]..began[2]];
    let steps = of_the_rival.iter().filter(|event| event["event"] == "step");
    assert_eq!(steps.count(), 0, "the rival had no node: {of_the_rival:?}");
}
