//! `{% generation %}` blocks: the parts of a template that the model is to write.
//!
//! The engine does not know the tag, so it becomes a filter block, which keeps white space and scope as they were:
//! `{% generation %}x{% endgeneration %}` is read as `{% filter NAME %}x{% endfilter %}`. The filter puts two marks
//! around its text when the rendering asks for them, and the mask reads them back.

use minijinja::State;

/// Name of the filter that stands for the tag.
pub(super) const FILTER: &str = "spotmux_generation";
/// Name of the variable that holds the two marks.
pub(super) const MARKS: &str = "spotmux_generation_marks";

/// Replaces the tags; says whether there were any.
pub(super) fn rewrite(source: &str) -> (String, bool) {
    let mut text = String::with_capacity(source.len());
    let mut rest = source;
    let mut found = false;
    while let Some(start) = rest.find("{%") {
        let inner = &rest[start + 2..];
        let Some(length) = inner.find("%}") else {
            break;
        };
        let tag = &inner[..length];
        let name = tag.trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+');
        text.push_str(&rest[..start + 2]);
        match name {
            "generation" => text.push_str(&tag.replace(name, &format!("filter {FILTER}"))),
            "endgeneration" => text.push_str(&tag.replace(name, "endfilter")),
            _ => text.push_str(tag),
        }
        found |= name == "generation";
        text.push_str("%}");
        rest = &inner[length + 2..];
    }
    text.push_str(rest);
    (text, found)
}

/// Puts the marks around the text where a rendering asks for them.
pub(super) fn mark(state: &State<'_, '_>, text: String) -> String {
    let marks = state.lookup(MARKS).filter(|marks| !marks.is_none());
    let mark = |index: usize| Some(marks.as_ref()?.get_item_by_index(index).ok()?.to_string());
    match mark(0).zip(mark(1)) {
        Some((open, close)) => format!("{open}{text}{close}"),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_keep_their_white_space_control() {
        let (text, found) =
            rewrite("{%- for m in x %}a{%- generation -%} b {%endgeneration%}{% endfor %}");
        assert!(found);
        assert_eq!(
            text,
            "{%- for m in x %}a{%- filter spotmux_generation -%} b {%endfilter%}{% endfor %}"
        );
    }

    #[test]
    fn other_text_stays() {
        for source in [
            "",
            "{% if generation %}x{% endif %}",
            "{{ generation }}",
            "{% open",
            "%} {%",
        ] {
            assert_eq!(rewrite(source), (source.to_owned(), false));
        }
    }
}
