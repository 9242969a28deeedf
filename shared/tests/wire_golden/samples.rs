//! One message of every variant.

use shared::ids::{EventNumber, JobId, JobName, NodeName, PlanEpoch, Term};
use shared::job::Products;
use shared::life::{JobState, Reason, ReasonClass};
use shared::plan::arrangement::{Arrangement, HybridTask};
use shared::plan::{Plan, Replica, Seat, Sharing, Sibling};
use shared::samples::SampleCount;
use shared::units::{Bytes, MicroUsd, Micros};
use shared::wire::market::{Ground, MarketTold, Money, Offered, Place};
use shared::wire::notice::{Departure, Held, Hello, JobNotice, LeaveCause, Notice};
use shared::wire::opening::{LinkOpening, Opening};
use shared::wire::order::{JobAction, JobOrder, Order, Ordered, SampleOrder};
use shared::wire::request::{
    BackboneView, FileRef, JobRef, Joining, Refusal, RefusalCode, Reply, Request, SampleRequest,
    Submission,
};
use shared::wire::view::{
    ClusterView, EventView, JobView, Level, NodeHealth, NodeView, PlanView, SpanView, Tempo,
};

fn node(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

fn named(name: &str) -> JobRef {
    JobRef::Name(JobName::new(name).unwrap())
}

fn file() -> FileRef {
    FileRef {
        path: "a/b.jsonl".into(),
        sha256: "00ff".into(),
        bytes: Bytes(70_000),
    }
}

fn replica() -> Replica {
    let seat = Seat {
        node: node("n1"),
        address: "127.0.0.1:4000".into(),
        first_layer: 0,
        end_layer: 15,
        activation_budget: Bytes(1 << 30),
        recomputed_layers: 7,
    };
    Replica {
        number: 0,
        seats: vec![seat.clone()],
        jobs: vec![JobId(1), JobId(300)],
        siblings: vec![Sibling {
            number: 1,
            seats: vec![seat],
        }],
    }
}

fn job() -> JobView {
    JobView {
        id: JobId(1),
        name: JobName::new("a").unwrap(),
        state: JobState::Running,
        reason: Some(Reason {
            class: ReasonClass::DataError,
            message: "line 3".into(),
        }),
        method: "lora 8".into(),
        step: 1,
        total_steps: 2,
        durable_step: 1,
        tokens: 512,
        first_loss: Some(2.5),
        last_loss: None,
        first_eval: None,
        last_eval: Some((1.5, 1)),
        learning_rate: Some(1e-4),
        replica: Some(0),
        queue_position: None,
        recoveries: 0,
        moves: 2,
        submitted: Micros(1),
        started: Some(Micros(2)),
        ended: None,
        spec: "{}".into(),
        trace: "ab".into(),
        tempo: Some(Tempo {
            step: Micros(900),
            steps: 8,
            alone: Some(Micros(600)),
            measured: true,
        }),
        money: Some(Money {
            spent: MicroUsd(1_500_000),
            saved: -7,
        }),
        samples: vec![SampleCount {
            file: "a.jsonl".into(),
            rows_in: 60,
            rows_used: 39,
            held_out: 4,
            dropped: [("over_long".to_owned(), 21)].into(),
            truncated: 3,
            max_length: 64,
        }],
    }
}

fn node_view() -> NodeView {
    NodeView {
        name: node("n1"),
        address: "127.0.0.1:4000".into(),
        health: NodeHealth::Draining,
        heartbeat_age: Micros(5),
        holds: Some((0, 1, 15, 30)),
        memory: Bytes(1 << 33),
        memory_used: Bytes(1),
        threads: 2,
        device: "cpu avx2".into(),
        risk: Some("rebalance".into()),
    }
}

fn span() -> SpanView {
    SpanView {
        node: node("n1"),
        stage: 1,
        lane: "device".into(),
        name: "forward".into(),
        micro_batch: Some(4),
        jobs: vec![(JobId(1), 2)],
        start: Micros(10),
        duration: Micros(20),
        bytes: Bytes(30),
    }
}

pub(crate) fn openings() -> Vec<Opening> {
    let link = LinkOpening {
        epoch: PlanEpoch(3),
        from_replica: 0,
        replica: 0,
        from_stage: 0,
        to_stage: 1,
        credits: 4,
        narrow: false,
    };
    vec![Opening::Request, Opening::Node, Opening::Link(link)]
}

pub(crate) fn requests() -> Vec<Request> {
    let sample = SampleRequest {
        job: Some(named("a")),
        system: Some("s".into()),
        prompt: "hé".into(),
        raw: true,
        max_tokens: 16,
        temperature: 0.5,
        top_p: 1.0,
        top_k: 0,
        seed: 7,
    };
    let signing_request = || "-----BEGIN".to_owned();
    vec![
        Request::Status,
        Request::Nodes,
        Request::Jobs,
        Request::Job(JobRef::Id(JobId(5))),
        Request::HasFile(file()),
        Request::PutFile(file()),
        Request::Submit(Submission {
            spec: "{}".into(),
            files: vec![file()],
        }),
        Request::Cancel(named("a")),
        Request::Pause(named("a")),
        Request::Resume(named("a")),
        Request::Events {
            job: None,
            after: EventNumber(300),
            follow: true,
        },
        Request::Drain {
            node: node("n1"),
            undo: true,
            force: false,
        },
        Request::Migrate {
            from: node("n1"),
            to: Some(node("n2")),
        },
        Request::Sample(sample),
        Request::Trace {
            job: Some(named("a")),
            step: Some(1),
        },
        Request::Fetch(named("a")),
        Request::Join(Joining {
            token: "t".into(),
            signing_request: signing_request(),
            cluster: Some("c".parse().unwrap()),
            role: "gpu-actor".into(),
            name: node("n1"),
        }),
        Request::Backbone,
        Request::BackboneFile {
            file: file(),
            from: Bytes(7),
        },
        Request::Renew {
            signing_request: signing_request(),
        },
        Request::Shutdown,
        Request::Plan,
        Request::Reclaim {
            node: node("n1"),
            within: Micros(30_000_000),
        },
        Request::Risk {
            node: node("n1"),
            cause: Some("rebalance".into()),
        },
        Request::Market(MarketTold {
            ground: Some(Ground {
                offers: vec![Offered {
                    place: Place {
                        region: "r".into(),
                        zone: "r-a".into(),
                    },
                    spot_price: MicroUsd(300_000),
                    spot_available: 4,
                    on_demand_price: MicroUsd(1_000_000),
                    on_demand_available: None,
                }],
                fewest: 1,
                most: 4,
                slot: Micros(1_800_000_000),
                tokens_per_machine_hour: 1000,
            }),
            bills: vec![(
                JobId(1),
                Money {
                    spent: MicroUsd(9),
                    saved: 10,
                },
            )],
        }),
    ]
}

pub(crate) fn replies() -> Vec<Reply> {
    let cluster = ClusterView {
        name: "c".into(),
        term: Term(2),
        plan: Plan {
            epoch: PlanEpoch(3),
            replicas: vec![replica()],
            sharing: vec![Sharing {
                job: JobId(1),
                replicas: vec![0, 1],
            }],
        },
        moving: Some((PlanEpoch(4), "prepare".into())),
        lack: Some("n1 shall be empty".into()),
        model: "smollm2".into(),
        layers: 30,
        jobs: vec![(JobState::Queued, 1)],
        nodes: vec![node_view()],
        clock: Micros(8),
        uptime: Micros(9),
        tokens_per_second: 12.5,
        newest_event: EventNumber(7),
    };
    let event = EventView {
        number: EventNumber(1),
        at: Micros(2),
        job: Some(JobId(3)),
        level: Level::Warn,
        kind: "step".into(),
        message: "m".into(),
        data: "{}".into(),
    };
    vec![
        Reply::Done,
        Reply::Refused(Refusal {
            code: RefusalCode::NoCapacity,
            message: "no".into(),
        }),
        Reply::Cluster(cluster),
        Reply::Nodes(vec![node_view()]),
        Reply::Jobs(vec![job()]),
        Reply::Job(Box::new(job())),
        Reply::Events(vec![event]),
        Reply::Piece("é".into()),
        Reply::Spans(vec![span()]),
        Reply::File(file()),
        Reply::Certificate {
            chain: "c".into(),
            authority: "a".into(),
        },
        Reply::Backbone(BackboneView {
            identity: "i".into(),
            base: "b".into(),
            files: vec![file()],
            nodes: vec![(node("n1"), "127.0.0.1:1".into())],
        }),
        Reply::Joined {
            chain: "c".into(),
            settings: vec![("cluster.name".into(), "\"c\"".into())],
        },
        Reply::Plan(Box::new(PlanView {
            question: "{}".into(),
            unread: vec![JobId(2)],
            left_out: 0,
        })),
    ]
}

pub(crate) fn orders() -> Vec<Ordered> {
    let epoch = PlanEpoch(3);
    let admitted = JobOrder {
        job: JobId(1),
        spec: "{}".into(),
        rows: "rows/1".into(),
        rows_sha256: "00".into(),
        init_from: Some([("a".into(), "b".into()), ("c".into(), "d".into())]),
        init_tokens: vec![1, 300, 70_000],
        paused: false,
        trace: "ab".into(),
        replicas: vec![0, 1],
    };
    let sample = SampleOrder {
        number: 1,
        job: None,
        prompt: vec![1, 2],
        max_tokens: 3,
        temperature: 0.0,
        top_p: 1.0,
        top_k: 4,
        seed: 5,
        stops: vec![0],
    };
    let orders = vec![
        Order::Prepare {
            epoch,
            replica: replica(),
            stage: 1,
        },
        Order::Drain {
            epoch,
            toward: PlanEpoch(9),
            soon: true,
        },
        Order::Undrain { epoch },
        Order::Hold {
            epoch,
            replica: replica(),
            stage: 0,
        },
        Order::Admit {
            epoch,
            jobs: vec![admitted],
        },
        Order::Act {
            epoch,
            job: JobId(1),
            action: JobAction::Cancel,
        },
        Order::Sample { epoch, sample },
        Order::Release { epoch },
        Order::Heard { notice: 9 },
        Order::Trace {
            number: 1,
            job: Some(JobId(1)),
            step: None,
        },
        Order::Stop,
        Order::Arrange {
            epoch,
            arrangement: Arrangement {
                buckets: vec![vec![HybridTask {
                    jobs: vec![JobId(1), JobId(4)],
                    parts: 8,
                }]],
                pass_rows: Some(512),
                chunk_rows: None,
                ahead: vec![3, 1],
                turn_rows: Some(2048),
            },
        },
        Order::Hasten {
            epoch,
            every_steps: 1,
        },
        Order::EndSample { epoch, number: 7 },
    ];
    let term = Term(2);
    orders
        .into_iter()
        .map(|order| Ordered { term, order })
        .collect()
}

fn job_notices() -> Vec<JobNotice> {
    let reason = Reason {
        class: ReasonClass::Numeric,
        message: "nan".into(),
    };
    vec![
        JobNotice::Admitted { step: 1, total: 2 },
        JobNotice::Refused(reason),
        JobNotice::Step {
            step: 1,
            loss: 2.5,
            accuracy: 0.5,
            gradient_norm: 1.0,
            learning_rate: 1e-4,
            tokens: 512,
        },
        JobNotice::Evaluation {
            step: 1,
            loss: 2.0,
            accuracy: 0.25,
        },
        JobNotice::Durable {
            step: 1,
            bytes: Bytes(2),
        },
        JobNotice::Paused { step: 1 },
        JobNotice::Resumed,
        JobNotice::Quarantined {
            step: 1,
            reason: "nan".into(),
        },
        JobNotice::Finished {
            step: 2,
            early: true,
        },
        JobNotice::Exported {
            files: vec![("k".into(), "00".into(), Bytes(3))],
        },
        JobNotice::Cancelled { step: 1 },
        JobNotice::Recovered { step: 1 },
        JobNotice::Salvaged {
            step: 1,
            files: vec![("k".into(), "00".into(), Bytes(3))],
        },
    ]
}

pub(crate) fn notices() -> Vec<Notice> {
    let epoch = PlanEpoch(3);
    let held = Held {
        epoch,
        replica: 0,
        stage: 0,
        linked: true,
        jobs: vec![(JobId(1), 2)],
        paused: vec![JobId(1)],
    };
    let hello = Hello {
        node: node("n1"),
        incarnation: 300,
        address: "127.0.0.1:4000".into(),
        backbone: "00ff".into(),
        products: Products::Split,
        layers: 30,
        memory: Bytes(1 << 33),
        threads: 2,
        device: "cpu avx2".into(),
        term: Term(2),
        held: Some(held),
        unheard: 4,
        clock: Micros(1 << 50),
    };
    let mut notices = vec![
        Notice::Hello(hello),
        Notice::Heartbeat {
            device_age: Micros(1),
            memory_used: Bytes(2),
            tokens: 3,
        },
        Notice::Prepared {
            epoch,
            outcome: Err("no".into()),
        },
        Notice::Drained {
            epoch,
            toward: PlanEpoch(9),
            outcome: Err("the disk is full".into()),
        },
        Notice::Leaving(Departure {
            within: Micros(30_000_000),
            cause: LeaveCause::Reclaimed,
        }),
        Notice::AtRisk {
            cause: Some("rebalance".into()),
        },
        Notice::Holding {
            epoch,
            outcome: Ok(()),
        },
        Notice::Broken {
            epoch,
            neighbour: Some(node("n2")),
            reason: "gone".into(),
        },
        Notice::Piece {
            number: 1,
            tokens: vec![5],
        },
        Notice::SampleEnded {
            number: 1,
            outcome: Ok(()),
        },
        Notice::Spans {
            number: 1,
            spans: vec![span()],
        },
        Notice::Refused {
            term: Term(2),
            reason: "old".into(),
        },
    ];
    notices.extend(job_notices().into_iter().map(|notice| Notice::Job {
        number: 1,
        epoch,
        job: JobId(1),
        at: Micros(7),
        notice,
    }));
    notices
}
