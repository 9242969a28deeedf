//! XML as a tree: answers of EC2 are small.

use quick_xml::Reader;
use quick_xml::events::Event;

/// Deepest nesting of an answer that is read.
const DEEPEST: usize = 32;

/// An element of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Element {
    name: String,
    text: String,
    children: Vec<Self>,
}

impl Element {
    /// Reads an answer; nothing where it is no XML, or too deep.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let mut reader = Reader::from_str(text);
        let mut open = vec![Self::default()];
        loop {
            match reader.read_event().ok()? {
                Event::Start(start) => {
                    if open.len() > DEEPEST {
                        return None;
                    }
                    let name = start.local_name();
                    open.push(Self {
                        name: String::from_utf8_lossy(name.as_ref()).into_owned(),
                        ..Self::default()
                    });
                }
                Event::Empty(start) => {
                    let name = start.local_name();
                    let own = Self {
                        name: String::from_utf8_lossy(name.as_ref()).into_owned(),
                        ..Self::default()
                    };
                    open.last_mut()?.children.push(own);
                }
                Event::End(_) => {
                    let own = open.pop()?;
                    open.last_mut()?.children.push(own);
                }
                Event::Text(words) => {
                    let words = String::from_utf8_lossy(&words);
                    open.last_mut()?.text.push_str(words.trim());
                }
                Event::Eof => break,
                _ => {}
            }
        }
        let root = open.pop()?;
        (open.is_empty() && root.children.len() == 1).then_some(())?;
        root.children.into_iter().next()
    }

    /// What stands in it.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The first child of a name.
    #[must_use]
    pub fn child(&self, name: &str) -> Option<&Self> {
        self.children.iter().find(|child| child.name == name)
    }

    /// What stands along a path of names.
    #[must_use]
    pub fn at(&self, path: &[&str]) -> Option<&str> {
        let mut own = self;
        for name in path {
            own = own.child(name)?;
        }
        Some(&own.text)
    }

    /// The items of a set; none where there is no such set.
    pub fn items<'a>(&'a self, set: &str) -> impl Iterator<Item = &'a Self> {
        let all = self.child(set).into_iter().flat_map(|set| &set.children);
        all.filter(|child| child.name == "item")
    }

    /// The token of the next page.
    #[must_use]
    pub fn next_page(&self) -> Option<&str> {
        self.at(&["nextToken"]).filter(|token| !token.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_xml_or_too_deep_is_nothing() {
        let tree = Element::read("<a><b>1</b><c><item>2</item></c></a>").expect("it is XML");
        assert_eq!(tree.at(&["b"]), Some("1"));
        assert_eq!(
            tree.items("c").map(Element::text).collect::<Vec<_>>(),
            ["2"]
        );
        assert_eq!(Element::read("<a><b></a>"), None);
        assert_eq!(Element::read(&"<a>".repeat(40)), None);
    }
}
