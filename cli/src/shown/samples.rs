//! Views for tests.
#![allow(clippy::unwrap_used, reason = "tests")]

use shared::ids::{EventNumber, JobId, JobName, NodeName, PlanEpoch, Term};
use shared::life::JobState;
use shared::plan::{Plan, Replica, Seat};
use shared::units::{Bytes, Micros};
use shared::wire::view::{ClusterView, EventView, JobView, Level, NodeHealth, NodeView};

pub(crate) fn job(id: u64, name: &str, state: JobState) -> JobView {
    JobView {
        id: JobId(id),
        name: JobName::new(name).unwrap(),
        state,
        reason: None,
        method: "LoRA r=8".into(),
        step: 0,
        total_steps: 100,
        durable_step: 0,
        tokens: 1000,
        first_loss: Some(2.0),
        last_loss: Some(1.5),
        first_eval: Some(2.25),
        last_eval: None,
        learning_rate: Some(1e-3),
        replica: Some(0),
        queue_position: None,
        recoveries: 0,
        moves: 0,
        submitted: Micros(10_000_000),
        started: Some(Micros(30_000_000)),
        ended: None,
        spec: r#"{"seed":42}"#.into(),
        trace: "abc".into(),
        tempo: None,
        money: None,
        samples: Vec::new(),
    }
}

pub(crate) fn node(
    name: &str,
    health: NodeHealth,
    holds: Option<(u32, u32, u32, u32)>,
) -> NodeView {
    let age = if health == NodeHealth::Lost {
        90_000_000
    } else {
        500_000
    };
    NodeView {
        name: NodeName::new(name).unwrap(),
        address: format!("127.0.0.1:{}", &name[1..]),
        health,
        heartbeat_age: Micros(age),
        holds,
        memory: Bytes(2 << 20),
        memory_used: Bytes(1 << 20),
        threads: 1,
        device: "cpu".into(),
        risk: None,
    }
}

pub(crate) fn cluster() -> ClusterView {
    let seat = |name: &str, first_layer, end_layer| Seat {
        node: NodeName::new(name).unwrap(),
        address: "127.0.0.1:1".into(),
        first_layer,
        end_layer,
        activation_budget: Bytes(1),
        recomputed_layers: 0,
    };
    ClusterView {
        name: "local".into(),
        term: Term(1),
        plan: Plan {
            epoch: PlanEpoch(2),
            replicas: vec![Replica {
                number: 0,
                seats: vec![seat("n1", 0, 2), seat("n2", 2, 4)],
                jobs: vec![JobId(3)],
                siblings: Vec::new(),
            }],
            sharing: Vec::new(),
        },
        moving: Some((PlanEpoch(3), "preparing".into())),
        lack: None,
        model: "tiny".into(),
        layers: 4,
        jobs: vec![
            (JobState::Running, 1),
            (JobState::Queued, 2),
            (JobState::Failed, 0),
        ],
        nodes: vec![
            node("n1", NodeHealth::Alive, Some((0, 0, 0, 2))),
            node("n2", NodeHealth::Lost, Some((0, 1, 2, 4))),
            node("n3", NodeHealth::Alive, None),
        ],
        clock: Micros(100_000_000),
        uptime: Micros(60_000_000),
        tokens_per_second: 250.0,
        newest_event: EventNumber(7),
    }
}

pub(crate) fn event(number: u64, level: Level, kind: &str, message: &str) -> EventView {
    EventView {
        number: EventNumber(number),
        at: Micros(100_000_000),
        job: Some(JobId(3)),
        level,
        kind: kind.into(),
        message: message.into(),
        data: r#"{"step":4}"#.into(),
    }
}
