//! What a rendering may make of its input, intermediate values included.
//!
//! One value may have 128 KiB and four times the input; all that is written, set, or gone through or made by filters and
//! methods together 64 MiB and 64 times the input. Operations that make a long value of short ones are measured before
//! they run. What is left, comparisons of values that are not longer than that, is bounded by the engine's count of instructions.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use minijinja::value::{Kwargs, Object, Rest, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Output, State, filters, tests};
use minijinja_contrib::pycompat;

/// Variable that holds the bytes of the input.
pub(super) const INPUT: &str = "spotmux_input";
/// Function that a loop or macro begins with.
pub(super) const CHECK: &str = "spotmux_check";
/// Function that looks at what a block set.
pub(super) const HOLD: &str = "spotmux_hold";
/// Filter that what is set passes.
pub(super) const PASS: &str = "spotmux_pass";
/// Filter that what a namespace is given passes.
pub(super) const KEEP: &str = "spotmux_keep";

/// Bytes of one value, and of all together, without input.
const BASE: [usize; 2] = [128 << 10, 64 << 20];
/// The same for each byte of input.
const SHARE: [usize; 2] = [4, 64];
/// Bytes counted for a value besides its text.
const VALUE: usize = 32;
/// Lists within lists.
const DEPTH: usize = 64;
/// Calls within calls.
const RECURSION: usize = 100;
/// Digits of a number in a format.
const DIGITS: usize = 3;

/// Marks an error as one of the budget.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Exceeded(pub(super) String);

/// What a rendering made so far.
#[derive(Debug, Default)]
struct Meter {
    input: AtomicUsize,
    made: AtomicUsize,
}

impl Object for Meter {}

impl Meter {
    fn of(state: &State<'_, '_>) -> Arc<Self> {
        let meter = state.get_or_set_temp_object("spotmux_meter", Self::default);
        if meter.input.load(Ordering::Relaxed) == 0
            && let Some(input) = state.lookup(INPUT)
        {
            meter.know(&input);
        }
        meter
    }

    fn know(&self, input: &Value) {
        self.input
            .store(input.as_usize().unwrap_or(0), Ordering::Relaxed);
    }

    fn limit(&self, which: usize) -> usize {
        let input = self.input.load(Ordering::Relaxed);
        BASE[which].saturating_add(SHARE[which].saturating_mul(input))
    }

    /// Refuses one value that is too long.
    fn hold(&self, bytes: usize) -> Result<(), Error> {
        if bytes <= self.limit(0) {
            return Ok(());
        }
        Err(exceeded(
            "a value longer than four times its input and 128 KiB",
        ))
    }

    /// Counts bytes that are made.
    fn make(&self, bytes: usize) -> Result<(), Error> {
        self.hold(bytes)?;
        let made = self.made.fetch_add(bytes, Ordering::Relaxed);
        if made.saturating_add(bytes) <= self.limit(1) {
            return Ok(());
        }
        Err(exceeded(
            "values of more than 64 times its input and 64 MiB together",
        ))
    }
}

fn exceeded(what: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, "budget").with_source(Exceeded(what.to_owned()))
}

/// Makes an environment keep the budget.
pub(super) fn keep(environment: &mut Environment<'static>) {
    environment.set_recursion_limit(RECURSION);
    environment.set_formatter(write);
    environment.set_unknown_method_callback(method);
    environment.add_filter(PASS, pass);
    environment.add_filter(KEEP, |state: &State<'_, '_>, value: Value| {
        if is_namespace(&value) {
            return Err(ring());
        }
        pass(state, value)
    });
    environment.add_function(CHECK, check);
    environment.add_function(HOLD, |state: &State<'_, '_>, value: Value| {
        let meter = Meter::of(state);
        meter.hold(weigh(&value, meter.limit(0))?)
    });
    for name in ["batch", "slice", "pprint"] {
        environment.remove_filter(name);
    }
    let measured = [
        ("capitalize", Value::from_function(filters::capitalize)),
        ("chain", Value::from_function(filters::chain)),
        ("count", Value::from_function(filters::length)),
        ("dictsort", Value::from_function(filters::dictsort)),
        ("e", Value::from_function(filters::escape)),
        ("escape", Value::from_function(filters::escape)),
        ("first", Value::from_function(filters::first)),
        ("float", Value::from_function(filters::float)),
        ("format", Value::from_function(filters::format)),
        ("groupby", Value::from_function(filters::groupby)),
        ("indent", Value::from_function(filters::indent)),
        ("int", Value::from_function(filters::int)),
        ("items", Value::from_function(filters::items)),
        ("join", Value::from_function(filters::join)),
        ("last", Value::from_function(filters::last)),
        ("length", Value::from_function(filters::length)),
        ("lines", Value::from_function(filters::lines)),
        ("list", Value::from_function(filters::list)),
        ("lower", Value::from_function(filters::lower)),
        ("map", Value::from_function(filters::map)),
        ("max", Value::from_function(filters::max)),
        ("min", Value::from_function(filters::min)),
        ("reject", Value::from_function(filters::reject)),
        ("rejectattr", Value::from_function(filters::rejectattr)),
        ("replace", Value::from_function(filters::replace)),
        ("reverse", Value::from_function(filters::reverse)),
        ("select", Value::from_function(filters::select)),
        ("selectattr", Value::from_function(filters::selectattr)),
        ("sort", Value::from_function(filters::sort)),
        ("split", Value::from_function(filters::split)),
        ("string", Value::from_function(filters::string)),
        ("sum", Value::from_function(filters::sum)),
        ("title", Value::from_function(filters::title)),
        ("trim", Value::from_function(filters::trim)),
        ("unique", Value::from_function(filters::unique)),
        ("upper", Value::from_function(filters::upper)),
        ("zip", Value::from_function(filters::zip)),
        ("tojson", Value::from_function(super::json::to_json)),
    ];
    for (name, filter) in measured {
        let run = move |state: &State<'_, '_>, args: Rest<Value>| {
            measure(state, name, &args)?;
            filter.call(state, &args)
        };
        environment.add_filter(name, run);
    }
    environment.add_test("lower", |state: &State<'_, '_>, text: &str| {
        looked(state, text).map(|()| tests::is_lower(text))
    });
    environment.add_test("upper", |state: &State<'_, '_>, text: &str| {
        looked(state, text).map(|()| tests::is_upper(text))
    });
}

/// Counts a text that a test goes through.
fn looked(state: &State<'_, '_>, text: &str) -> Result<(), Error> {
    Meter::of(state).make(text.len())
}

fn write(output: &mut Output<'_>, state: &State<'_, '_>, value: &Value) -> Result<(), Error> {
    let meter = Meter::of(state);
    meter.make(weigh(value, meter.limit(0))?)?;
    minijinja::escape_formatter(output, state, value)
}

fn pass(state: &State<'_, '_>, value: Value) -> Result<Value, Error> {
    let meter = Meter::of(state);
    meter.make(weigh(&value, meter.limit(0))?)?;
    Ok(value)
}

/// The beginning of a round of a loop or of a macro: its plain text is counted, its names are looked at.
fn check(
    state: &State<'_, '_>,
    input: Value,
    plain: usize,
    names: Rest<Value>,
) -> Result<bool, Error> {
    let meter = Meter::of(state);
    meter.know(&input);
    meter.make(plain)?;
    for value in names.iter() {
        meter.hold(weigh(value, meter.limit(0))?)?;
    }
    Ok(false)
}

/// Python's methods, measured.
fn method(
    state: &State<'_, '_>,
    value: &Value,
    name: &str,
    args: &[Value],
) -> Result<Value, Error> {
    if let Some(text) = value.as_str() {
        match name {
            "join" => {
                let turned: Vec<Value> = args.iter().take(1).chain([value]).cloned().collect();
                measure(state, name, &turned)?;
            }
            "replace" | "split" | "splitlines" | "format" => {
                let whole: Vec<Value> = [value].into_iter().chain(args).cloned().collect();
                measure(state, name, &whole)?;
            }
            "upper" | "lower" | "title" | "capitalize" | "strip" | "lstrip" | "rstrip" => {
                Meter::of(state).make(text.len())?;
            }
            _ => {}
        }
    }
    pycompat::unknown_method_callback(state, value, name, args)
}

/// Counts what a filter or method will make of its arguments.
fn measure(state: &State<'_, '_>, name: &str, args: &[Value]) -> Result<(), Error> {
    let meter = Meter::of(state);
    let limit = meter.limit(0);
    let text = |at: usize| args.get(at).and_then(|value: &Value| value.as_str());
    let Some(first) = args.first() else {
        return Ok(());
    };
    let bytes = match (name, text(0)) {
        ("replace", Some(whole)) => {
            let (from, to) = (text(1).unwrap_or(""), text(2).unwrap_or(""));
            let places = whole.matches(from).count();
            whole.len().saturating_add(places.saturating_mul(to.len()))
        }
        ("indent", Some(whole)) => {
            let named = args
                .last()
                .and_then(|last| Kwargs::try_from(last.clone()).ok())
                .and_then(|named| named.get::<Option<usize>>("width").ok().flatten());
            let given = args.get(1).and_then(Value::as_usize);
            let width = given.or(named).unwrap_or(4);
            let lines = whole.matches('\n').count() + 1;
            whole.len().saturating_add(lines.saturating_mul(width))
        }
        ("join", _) => {
            let joiner = text(1).map_or(0, str::len);
            let count = first.len().unwrap_or(0);
            weigh(first, limit)?.saturating_add(count.saturating_mul(joiner))
        }
        (
            "lines" | "list" | "map" | "max" | "min" | "reject" | "select" | "sort" | "split"
            | "splitlines" | "unique" | "zip",
            Some(whole),
        ) => {
            // A list of small parts takes more than its text, but it is gone soon: counted in all, not as one value.
            let mut left = whole.len().saturating_mul(VALUE);
            while left > limit {
                meter.make(limit)?;
                left -= limit;
            }
            left
        }
        ("list", None) => VALUE * first.len().unwrap_or(0),
        // They do not go through what they are of, and stand in loops over it.
        ("length" | "count" | "first" | "last" | "items", None) => VALUE,
        ("format", Some(whole)) => {
            if widest(whole) > DIGITS {
                return Err(exceeded("a format with a number of more than three digits"));
            }
            let mut bytes = whole.len() * 1000_usize.min(limit / whole.len().max(1));
            for value in &args[1..] {
                bytes = bytes.max(weigh(value, limit)?);
            }
            bytes
        }
        _ => weigh(first, limit)?,
    };
    meter.make(bytes)
}

/// Digits of the longest number in a format; a width that is taken from the arguments counts as long.
fn widest(format: &str) -> usize {
    if format.contains('*') || format.contains(":{") {
        return usize::MAX;
    }
    let runs = format.split(|c: char| !c.is_ascii_digit());
    runs.map(str::len).max().unwrap_or(0)
}

/// Namespaces are the only values that can change, so the only ones that could come to hold themselves.
fn is_namespace(value: &Value) -> bool {
    let object = value.as_object();
    object.is_some_and(|object| object.type_name().ends_with("Namespace"))
}

fn ring() -> Error {
    exceeded("a namespace within a value, which could hold itself")
}

/// The bytes of a value written out, and some for each value in it; more than `most` is told as soon as it is sure.
fn weigh(value: &Value, most: usize) -> Result<usize, Error> {
    let mut bytes = 0;
    add(value, most, DEPTH, &mut bytes)?;
    Ok(bytes)
}

fn add(value: &Value, most: usize, depth: usize, bytes: &mut usize) -> Result<(), Error> {
    if let Some(text) = value.as_str() {
        *bytes += text.len();
        return Ok(());
    }
    *bytes += VALUE;
    if *bytes > most {
        return Ok(());
    }
    let pairs = value.kind() == ValueKind::Map;
    if !pairs && !matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable) {
        return Ok(());
    }
    if depth < DEPTH && is_namespace(value) {
        return Err(ring());
    }
    if depth == 0 {
        return Err(exceeded("lists within more than 64 lists"));
    }
    for item in value.try_iter()? {
        if pairs {
            add(&value.get_item(&item)?, most, depth - 1, bytes)?;
        }
        add(&item, most, depth - 1, bytes)?;
        if *bytes > most {
            return Ok(());
        }
    }
    Ok(())
}
