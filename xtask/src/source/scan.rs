//! What one Rust file names: a walk over its tokens.
//!
//! Tokens, not a syntax tree: a path inside a macro call counts as much as one outside, and comments and
//! strings do not count at all.

mod tokens;

use std::str::FromStr;

use proc_macro2::{TokenStream, TokenTree};

use tokens::{
    inside, is_double_colon, is_macro_call, is_punct, is_test_only, item_end, past_semicolon,
    read_attribute,
};

/// What one Rust file names.
#[derive(Debug, Default)]
pub struct Scan {
    /// Paths of two segments or more, imports and macro calls, in the order of the file.
    pub mentions: Vec<Mention>,
    /// `mod name;` lines.
    pub children: Vec<Child>,
    /// Names that `use` lines bring into the file's own module.
    pub names: Vec<Name>,
    /// Lines with the word `unsafe`.
    pub unsafe_lines: Vec<usize>,
    /// Texts of the `#![..]` attributes at the head of the file, brackets left out.
    pub root_attributes: Vec<String>,
}

/// A path in the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mention {
    /// Its segments, such as `["std", "fs", "File"]`.
    pub path: Vec<String>,
    /// Line in the file, from 1.
    pub line: usize,
    /// Inline modules around it, inside the file.
    pub depth: usize,
    /// How it is named.
    pub kind: MentionKind,
    /// Whether only test builds have it.
    pub test: bool,
}

/// How a path is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MentionKind {
    /// In a `use` line.
    Import,
    /// In the code.
    Path,
    /// As a macro call.
    Macro,
}

/// A `mod name;` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Child {
    /// The module.
    pub name: String,
    /// Whether only test builds have it.
    pub test: bool,
}

/// A name that a `use` line brings in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The name in this module.
    pub name: String,
    /// The path it stands for.
    pub path: Vec<String>,
}

/// Tells why a text is not Rust.
#[derive(Debug)]
pub struct ScanError {
    /// Line where the reader stopped, from 1.
    pub line: usize,
}

impl Scan {
    /// Reads a file's text.
    ///
    /// # Errors
    /// [`ScanError`] where the text does not lex as Rust.
    pub fn parse(text: &str) -> Result<Self, ScanError> {
        let tokens = TokenStream::from_str(text).map_err(|error| ScanError {
            line: error.span().start().line,
        })?;
        let mut scan = Self::default();
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        scan.walk(&tokens, Context::default());
        Ok(scan)
    }

    fn walk(&mut self, tokens: &[TokenTree], mut context: Context) {
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == '#' => {
                    let (attribute, inner, next) = read_attribute(tokens, at);
                    at = next;
                    if inner && context.depth == 0 {
                        let text = attribute.map(|group| group.stream().to_string());
                        self.root_attributes.extend(text);
                    }
                    if !attribute.is_some_and(is_test_only) {
                        continue;
                    }
                    if inner {
                        context.test = true;
                        continue;
                    }
                    let end = item_end(tokens, at);
                    let test = Context {
                        test: true,
                        ..context
                    };
                    self.walk(&tokens[at..end], test);
                    at = end;
                }
                TokenTree::Ident(word) if *word == "use" && !is_punct(tokens, at + 1, '<') => {
                    let end = past_semicolon(tokens, at);
                    self.import(&tokens[at + 1..end], context);
                    at = end;
                }
                TokenTree::Ident(word) if *word == "mod" => at = self.module(tokens, at, context),
                TokenTree::Ident(word) => {
                    if *word == "unsafe" {
                        self.unsafe_lines.push(word.span().start().line);
                    }
                    at = self.path(tokens, at, context);
                }
                TokenTree::Group(group) => {
                    self.walk(&inside(group), context);
                    at += 1;
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => at += 1,
            }
        }
    }

    /// Reads `mod name;` or `mod name { .. }` and says where it ends.
    fn module(&mut self, tokens: &[TokenTree], at: usize, context: Context) -> usize {
        let Some(TokenTree::Ident(name)) = tokens.get(at + 1) else {
            return at + 1;
        };
        match tokens.get(at + 2) {
            Some(TokenTree::Group(body)) => {
                let deeper = Context {
                    depth: context.depth + 1,
                    ..context
                };
                self.walk(&inside(body), deeper);
            }
            _ if context.depth == 0 => self.children.push(Child {
                name: name.to_string(),
                test: context.test,
            }),
            _ => {}
        }
        at + 3
    }

    /// Reads `a::b::c` or `name!` and says where it ends.
    fn path(&mut self, tokens: &[TokenTree], at: usize, context: Context) -> usize {
        let mut path = Vec::new();
        let mut next = at;
        while let Some(TokenTree::Ident(word)) = tokens.get(next) {
            path.push(word.to_string());
            next += 1;
            if !is_double_colon(tokens, next) {
                break;
            }
            next += 2;
        }
        let kind = if is_macro_call(tokens, next) {
            MentionKind::Macro
        } else {
            MentionKind::Path
        };
        if path.len() > 1 || kind == MentionKind::Macro {
            self.mention(path, tokens[at].span().start().line, kind, context);
        }
        next
    }

    fn mention(&mut self, path: Vec<String>, line: usize, kind: MentionKind, context: Context) {
        self.mentions.push(Mention {
            path,
            line,
            depth: context.depth,
            kind,
            test: context.test,
        });
    }

    fn import(&mut self, tokens: &[TokenTree], context: Context) {
        let mut leaves = Vec::new();
        read_use_tree(tokens, &[], &mut leaves);
        for leaf in leaves {
            if let Some(name) = leaf.name.filter(|_| context.depth == 0) {
                self.names.push(Name {
                    name,
                    path: leaf.path.clone(),
                });
            }
            self.mention(leaf.path, leaf.line, MentionKind::Import, context);
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Context {
    depth: usize,
    test: bool,
}

struct Leaf {
    path: Vec<String>,
    name: Option<String>,
    line: usize,
}

/// Reads `a::{b, c::{self, d as e}, f::*}` into one leaf for each import; a glob has no name.
fn read_use_tree(tokens: &[TokenTree], prefix: &[String], leaves: &mut Vec<Leaf>) {
    let mut at = 0;
    while at < tokens.len() {
        let mut path = prefix.to_vec();
        let mut name = None;
        let mut line = None;
        while let Some(token) = tokens.get(at) {
            at += 1;
            match token {
                TokenTree::Ident(word) if *word == "as" => {
                    name = tokens.get(at).map(ToString::to_string);
                    at += 1;
                }
                TokenTree::Ident(word) => {
                    line.get_or_insert_with(|| word.span().start().line);
                    let word = word.to_string();
                    if word != "self" || path.is_empty() {
                        path.push(word);
                    }
                    name = path.last().cloned();
                }
                TokenTree::Group(group) => {
                    read_use_tree(&inside(group), &path, leaves);
                    line = None;
                }
                TokenTree::Punct(punct) if punct.as_char() == '*' => {
                    name = None;
                    line.get_or_insert_with(|| punct.span().start().line);
                }
                TokenTree::Punct(punct) if ",;".contains(punct.as_char()) => break,
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
        if let Some(line) = line {
            leaves.push(Leaf { path, name, line });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str) -> Vec<String> {
        Scan::parse(text)
            .unwrap()
            .mentions
            .iter()
            .map(|mention| {
                let test = if mention.test { " (test)" } else { "" };
                format!("{}{test}", mention.path.join("::"))
            })
            .collect()
    }

    #[test]
    fn imports_are_read_leaf_by_leaf() {
        let text = "use std::{fs, io::{self, Read}, env as surroundings};\nuse super::*;";
        assert_eq!(
            paths(text),
            ["std::fs", "std::io", "std::io::Read", "std::env", "super"]
        );
        let names = Scan::parse(text).unwrap().names;
        assert_eq!(names.last().unwrap().name, "surroundings");
    }

    #[test]
    fn paths_in_code_and_in_macros_count_and_strings_and_comments_do_not() {
        let text = r#"
            // std::net in a comment
            /// std::env in the docs
            fn f() -> impl Fn() + use<> {
                let _ = "std::fs::read";
                println!("{:?}", std::time::Instant::now());
                assert!(1 != 2);
                Vec::<u8>::new()
            }
        "#;
        assert_eq!(
            paths(text),
            ["println", "std::time::Instant::now", "assert"]
        );
    }

    #[test]
    fn test_code_is_marked() {
        let text = "
            #[cfg(test)]
            use std::fs;
            #[cfg(all(test, unix))]
            mod tests { use std::env; fn g() { std::net::x() } }
            #[cfg(not(test))]
            use std::process;
            #[cfg(test)]
            mod slow;
            mod fast;
        ";
        assert_eq!(
            paths(text),
            [
                "std::fs (test)",
                "std::env (test)",
                "std::net::x (test)",
                "std::process"
            ]
        );
        let children = Scan::parse(text).unwrap().children;
        let children: Vec<(&str, bool)> = children
            .iter()
            .map(|child| (child.name.as_str(), child.test))
            .collect();
        assert_eq!(children, [("slow", true), ("fast", false)]);
    }

    #[test]
    fn unsafe_is_found_by_line() {
        let scan = Scan::parse("#![deny(unsafe_code)]\nfn f() {\n    unsafe { g() }\n}").unwrap();
        assert_eq!(scan.unsafe_lines, [3]);
    }

    #[test]
    fn a_broken_file_names_its_line() {
        assert_eq!(Scan::parse("fn f() {\n  (\n}").unwrap_err().line, 3);
    }
}
