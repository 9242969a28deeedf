//! Compares what came out with what must come out; collects every failure before anything fails.

use anyhow::Result;

use super::case::{Case, IndexedLoss};
use super::contestant::{Contestant, Outcome};
use super::set::{ModelReference, ReferenceSet};
use crate::oracle::cross_entropy::SequenceLoss;
use crate::oracle::tensor::Tensors;

/// How far numbers may be from the references.
#[derive(Clone, Copy, Debug)]
pub struct Tolerances {
    /// Logits, of the largest of a sequence.
    pub logits: f64,
    /// Losses before anything was trained, relative.
    pub first_loss: f64,
    /// Losses of later steps, relative.
    pub loss: f64,
    /// First gradient, of the tensor's largest value.
    pub gradient: f64,
    /// Final parameters, of the tensor's largest value.
    pub parameters: f64,
}

/// What an engine in f32 must reach.
pub const F32: Tolerances = Tolerances {
    logits: 1e-5,
    first_loss: 1e-5,
    loss: 1e-4,
    gradient: 1e-4,
    parameters: 1e-3,
};

/// What the judge in f64 must reach: the files hold f32, and the library rounds rotation frequencies to f32.
pub const F64: Tolerances = Tolerances {
    logits: 5e-6,
    first_loss: 1e-7,
    loss: 1e-7,
    gradient: 1e-5,
    parameters: 1e-4,
};

/// The worst deviations found, and every failure.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// One sentence each.
    pub failures: Vec<String>,
    /// One line for each model and case: the worst deviation by kind.
    pub table: Vec<String>,
}

/// Collects deviations of one model or case.
struct Entry<'a> {
    subject: &'a str,
    worst: Vec<(&'static str, f64)>,
    failures: &'a mut Vec<String>,
}

impl<'a> Entry<'a> {
    fn new(subject: &'a str, failures: &'a mut Vec<String>) -> Self {
        Self {
            subject,
            worst: Vec::new(),
            failures,
        }
    }

    fn fail(&mut self, what: &str) {
        self.failures.push(format!("{}: {what}", self.subject));
    }

    /// Notes a deviation; a number that is not finite is infinitely far away.
    fn note(&mut self, kind: &'static str, what: &str, deviation: f64, tolerance: f64) {
        let deviation = if deviation.is_finite() {
            deviation
        } else {
            f64::INFINITY
        };
        if deviation > tolerance {
            self.fail(&format!(
                "{what} is {deviation:.1e} away, {tolerance:.0e} allowed"
            ));
        }
        match self.worst.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, worst)) => *worst = worst.max(deviation),
            None => self.worst.push((kind, deviation)),
        }
    }

    fn number(&mut self, kind: &'static str, what: &str, (got, want): (f64, f64), tolerance: f64) {
        let deviation = (got - want).abs() / want.abs().max(1e-12);
        self.note(kind, what, deviation, tolerance);
    }

    fn losses(
        &mut self,
        kind: &'static str,
        got: &[SequenceLoss],
        want: &[IndexedLoss],
        tolerance: f64,
    ) {
        if got.len() != want.len() {
            self.fail(&format!(
                "{kind}: {} rows, {} wanted",
                got.len(),
                want.len()
            ));
        }
        for (got, want) in got.iter().zip(want) {
            let what = format!("{kind} of row {}", want.index);
            if got.tokens != want.tokens {
                self.fail(&format!(
                    "{what} counts {} tokens, {} wanted",
                    got.tokens, want.tokens
                ));
            }
            // A sum over few tokens may be near zero: then its deviation is measured against one token's nat.
            let deviation = (got.sum - want.sum).abs() / want.sum.abs().max(1.0);
            self.note(kind, &what, deviation, tolerance);
        }
    }

    fn tensors(&mut self, kind: &'static str, got: &Tensors, want: &Tensors, tolerance: f64) {
        let largest = want.values().map(|t| t.largest()).fold(0.0, f64::max);
        for key in got.keys().filter(|key| !want.contains_key(*key)) {
            self.fail(&format!("{kind} of {key} is not expected"));
        }
        for (key, want) in want {
            let Some(got) = got.get(key) else {
                self.fail(&format!("{kind} of {key} is missing"));
                continue;
            };
            if got.values.len() != want.values.len() {
                self.fail(&format!("{kind} of {key} has another shape"));
                continue;
            }
            // A tensor of exact zeros has no scale of its own.
            let scale = want.largest().max(1e-5 * largest).max(f64::MIN_POSITIVE);
            let pairs = got.values.iter().zip(&want.values);
            let away = pairs.map(|(got, want)| (got - want).abs());
            let away = away.fold(0.0, |most: f64, d| if d.is_nan() { d } else { most.max(d) });
            self.note(kind, &format!("{kind} of {key}"), away / scale, tolerance);
        }
    }

    fn line(&self) -> String {
        let worst = self.worst.iter();
        let worst: Vec<String> = worst.map(|(kind, d)| format!("{kind} {d:.1e}")).collect();
        format!("{:32} {}", self.subject, worst.join("  "))
    }
}

/// Holds a contestant against a whole set.
#[must_use]
pub fn compare<C: Contestant>(set: &ReferenceSet, tolerances: &Tolerances) -> Findings {
    let mut findings = Findings::default();
    for (name, reference) in &set.models {
        let cases = set.cases_of(name, &mut findings.failures);
        if let Err(error) =
            compare_model::<C>(set, name, reference, &cases, tolerances, &mut findings)
        {
            findings.failures.push(format!("model {name}: {error:#}"));
        }
    }
    // Every model reads every case, so one that cannot be read is told once for each of them.
    findings.failures.sort();
    findings.failures.dedup();
    findings
}

fn compare_model<C: Contestant>(
    set: &ReferenceSet,
    name: &str,
    reference: &ModelReference,
    cases: &[Case],
    tolerances: &Tolerances,
    findings: &mut Findings,
) -> Result<()> {
    let mut contestant = C::open(&reference.folder)?;
    compare_base(&mut contestant, set, name, reference, tolerances, findings)?;
    for case in cases {
        match contestant.train(&[case], &set.rows) {
            Ok(outcomes) => {
                for outcome in &outcomes {
                    let line = compare_case(case, outcome, tolerances, &mut findings.failures);
                    findings.table.push(line);
                }
            }
            Err(error) => findings
                .failures
                .push(format!("case {}: {error:#}", case.name)),
        }
    }
    Ok(())
}

fn compare_base<C: Contestant>(
    contestant: &mut C,
    set: &ReferenceSet,
    name: &str,
    reference: &ModelReference,
    tolerances: &Tolerances,
    findings: &mut Findings,
) -> Result<()> {
    let mut entry = Entry::new(name, &mut findings.failures);
    for (&index, want) in &reference.logits {
        let got = contestant.logits(&set.rows[index].ids)?;
        let largest = want
            .values
            .iter()
            .fold(0.0, |most: f64, v| v.abs().max(most));
        let pairs = got.values.iter().zip(&want.values);
        let away = pairs.fold(0.0, |most: f64, (got, want)| (got - want).abs().max(most));
        if got.values.len() != want.values.len() {
            entry.fail(&format!("logits of row {index} have another shape"));
        }
        let what = format!("logits of row {index}");
        entry.note("logits", &what, away / largest, tolerances.logits);
    }
    let losses = reference
        .losses
        .iter()
        .map(|want| contestant.loss(&set.rows[want.index]))
        .collect::<Result<Vec<_>>>()?;
    entry.losses("loss", &losses, &reference.losses, tolerances.first_loss);
    let line = entry.line();
    findings.table.push(line);
    Ok(())
}

/// Compares one case; returns a line of its worst deviations.
#[must_use]
pub fn compare_case(
    case: &Case,
    outcome: &Outcome,
    tolerances: &Tolerances,
    failures: &mut Vec<String>,
) -> String {
    let (mut entry, want) = (Entry::new(&case.name, failures), &case.expected);
    if outcome.losses.len() != want.losses.len() {
        entry.fail(&format!(
            "{} losses, {} wanted",
            outcome.losses.len(),
            want.losses.len()
        ));
    }
    for (step, pair) in outcome.losses.iter().zip(&want.losses).enumerate() {
        let (kind, tolerance) = match step {
            0 => ("first loss", tolerances.first_loss),
            _ => ("loss", tolerances.loss),
        };
        let what = format!("loss of step {step}");
        entry.number(kind, &what, (*pair.0, *pair.1), tolerance);
    }
    if let (Some(&got), Some(&want)) = (outcome.norms.first(), want.norms.first()) {
        let what = "norm of the first gradient";
        entry.number("norm", what, (got, want), tolerances.gradient);
    }
    let first = &outcome.first_sequences;
    entry.losses(
        "first rows",
        first,
        &want.first_sequences,
        tolerances.first_loss,
    );
    let last = &outcome.final_sequences;
    entry.losses(
        "last rows",
        last,
        &want.final_sequences,
        10.0 * tolerances.loss,
    );
    let (got, wanted) = (&outcome.first_gradient, &want.first_gradient);
    entry.tensors("gradient", got, wanted, tolerances.gradient);
    let (got, wanted) = (&outcome.final_parameters, &want.final_parameters);
    entry.tensors("parameter", got, wanted, tolerances.parameters);
    entry.line()
}
