//! `{% generation %}` blocks: the parts of a template that the model is to write.
//!
//! The engine does not know the tag, so it becomes a filter block, which keeps white space and scope as they were:
//! `{% generation %}x{% endgeneration %}` is read as `{% filter NAME %}x{% endfilter %}`. The filter puts two marks
//! around its text when the rendering asks for them, and the mask reads them back.

use minijinja::State;

/// Name of the filter that stands for the tag.
pub(super) const FILTER: &str = "spotmux_generation";
/// Name of the variable that holds the two marks.
const MARKS: &str = "spotmux_generation_marks";

/// Puts the marks around the text where a rendering asks for them.
pub(super) fn mark(state: &State<'_, '_>, text: String) -> String {
    let marks = state.lookup(MARKS).filter(|marks| !marks.is_none());
    let mark = |index: usize| Some(marks.as_ref()?.get_item_by_index(index).ok()?.to_string());
    match mark(0).zip(mark(1)) {
        Some((open, close)) => format!("{open}{text}{close}"),
        None => text,
    }
}
