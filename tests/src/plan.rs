//! Random jobs: method, rows, optimizer, schedule and time of arrival.

use data::rows::TokenRow;
use gpu_actor::model::Model;
use gpu_actor::peft::init;
use gpu_actor::peft::layout::Layout;
use gpu_actor::train::pack::Request;
use kernels::cpu::Cpu;
use proptest::prelude::*;
use shared::ids::JobName;
use shared::job::{
    AdapterSpec, CheckpointSpec, DataSpec, EvalSpec, JobSpec, OptimizerKind, OptimizerSpec,
    Overlong, ScheduleKind, ScheduleSpec, TrainSpec,
};
use shared::random::{Domain, Stream};

use crate::method;

/// A job and everything that it brings along.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The job.
    pub spec: JobSpec,
    /// Lengths of its rows; their tokens follow from its seed.
    pub lengths: Vec<usize>,
    /// The round in which it arrives.
    pub arrives: usize,
}

/// A job named `name` with this method; four rows, one step a row.
pub fn plain(name: &str, adapter: AdapterSpec) -> Plan {
    let spec = JobSpec {
        replicas: 1,
        name: JobName::new(name).expect("a name"),
        seed: 7,
        adapter,
        data: DataSpec {
            train: "rows".into(),
            eval: None,
            eval_split: 0.0,
            max_length: None,
            overlong: Overlong::Drop,
            train_on_inputs: false,
            max_dropped: 0.0,
        },
        train: TrainSpec {
            epochs: None,
            steps: Some(4),
            batch_size: 2,
            accumulation: 1,
            shuffle: true,
        },
        optimizer: OptimizerSpec {
            learning_rate: 1e-2,
            epsilon: 1e-4,
            ..OptimizerSpec::default()
        },
        schedule: ScheduleSpec::default(),
        eval: EvalSpec::default(),
        checkpoint: CheckpointSpec::default(),
        tenant: None,
        market: None,
        init_from: None,
    };
    Plan {
        spec,
        lengths: vec![9, 70, 33, 5],
        arrives: 0,
    }
}

/// Any job, without a name.
pub fn any_plan() -> impl Strategy<Value = Plan> {
    let data = (
        proptest::collection::vec(2..150usize, 1..6),
        1..4usize,
        1..4usize,
        1..4u64,
    );
    let life = (
        any::<u64>(),
        0..3usize,
        proptest::option::of(Just(1u64)),
        any::<bool>(),
    );
    let rule = (
        any::<bool>(),
        proptest::option::of(0.05..2.0f64),
        0.0..0.2f64,
    );
    (method::any_method(), data, life, rule).prop_map(
        |(adapter, (lengths, batch_size, accumulation, steps), life, rule)| {
            let (seed, arrives, every_steps, cosine) = life;
            let (sgd, max_grad_norm, weight_decay) = rule;
            let mut plan = plain("unnamed", adapter);
            plan.spec.seed = seed;
            plan.spec.train = TrainSpec {
                epochs: None,
                steps: Some(steps),
                batch_size,
                accumulation,
                shuffle: true,
            };
            plan.spec.optimizer = OptimizerSpec {
                kind: if sgd {
                    OptimizerKind::Sgd
                } else {
                    OptimizerKind::AdamW
                },
                learning_rate: 5e-3,
                weight_decay,
                momentum: 0.9,
                max_grad_norm,
                // Large enough that Adam does not make steps of rounding errors.
                epsilon: 1e-4,
                ..OptimizerSpec::default()
            };
            plan.spec.schedule = ScheduleSpec {
                kind: if cosine {
                    ScheduleKind::Cosine
                } else {
                    ScheduleKind::Linear
                },
                warmup_steps: 1,
                ..ScheduleSpec::default()
            };
            plan.spec.eval.every_steps = every_steps;
            Plan {
                lengths,
                arrives,
                ..plan
            }
        },
    )
}

/// A few jobs with names of their own, whose order has nothing to do with their arrival.
pub fn any_plans(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Plan>> {
    proptest::collection::vec(any_plan(), count).prop_map(|mut plans| {
        for (index, plan) in plans.iter_mut().enumerate() {
            plan.spec.name = JobName::new(format!("job-{index}")).expect("a name");
        }
        plans
    })
}

impl Plan {
    /// Its rows: tokens below `vocab`, some of them without a label.
    pub fn rows(&self, vocab: usize) -> Vec<TokenRow> {
        let row = |(index, &length): (usize, &usize)| {
            let stream = Stream::new(self.spec.seed, Domain::TinyModel, [index as u32, 1, 0]);
            let ids: Vec<u32> = (0..length as u32)
                .map(|t| stream.below(t, vocab as u64) as u32)
                .collect();
            let labels = ids.iter().enumerate().map(|(t, &id)| {
                let counts = t + 1 == length || stream.uniform(4 * (length + t) as u32) < 0.7;
                if counts { id as i32 } else { -100 }
            });
            let labels = labels.collect();
            TokenRow::new(ids, labels)
        };
        self.lengths.iter().enumerate().map(row).collect()
    }

    /// All of these rows as one step of its job, whose adapter lies at slot 0.
    pub fn request<'a>(&self, layout: &Layout, rows: &'a [TokenRow]) -> Request<'a> {
        Request {
            slot: 0,
            prompt_tokens: layout.prompt.as_ref().map_or(0, |site| site.tokens),
            prefix_tokens: layout.prefix.as_ref().map_or(0, |site| site.tokens),
            step: 0,
            rows: rows.iter().collect(),
            part: None,
        }
    }

    /// Its first values: the usual ones, moved so that no part of a gradient is zero at first.
    pub fn values(&self, layout: &Layout, model: &Model) -> Vec<f32> {
        let cpu = Cpu::new(1).expect("one thread");
        let mut values = init::values(layout, model, &cpu, self.spec.seed, &[]);
        let stream = Stream::new(self.spec.seed, Domain::TinyModel, [2, 2, 0]);
        for (i, value) in values.iter_mut().enumerate() {
            *value += 0.05 * stream.normal(i as u32);
        }
        values
    }
}
