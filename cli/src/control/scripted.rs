//! A coordinator of tests: answers by a function, and remembers what it was asked.

use std::cell::{Cell, RefCell};
use std::fs;
use std::path::Path;

use shared::units::Bytes;
use shared::wire::request::{FileRef, Refusal, RefusalCode, Reply, Request};

use super::{Control, Flow};
use crate::exit::{Exit, Failure};

type Answer = dyn Fn(&Request, usize) -> Vec<Reply>;

/// Answers by a function of the request and of how many came before.
pub(crate) struct Scripted {
    answer: Box<Answer>,
    lost: bool,
    /// What was asked, in order.
    pub(crate) asked: RefCell<Vec<Request>>,
    /// What was uploaded: hash and bytes.
    pub(crate) uploaded: RefCell<Vec<(String, Vec<u8>)>>,
    /// How often it was connected to anew.
    pub(crate) again: Cell<u32>,
}

impl Scripted {
    pub(crate) fn new(answer: impl Fn(&Request, usize) -> Vec<Reply> + 'static) -> Self {
        Self {
            answer: Box::new(answer),
            lost: false,
            asked: RefCell::default(),
            uploaded: RefCell::default(),
            again: Cell::default(),
        }
    }

    /// One whose coordinator is gone.
    pub(crate) fn lost() -> Self {
        Self {
            lost: true,
            ..Self::new(|_, _| Vec::new())
        }
    }

    fn replies(&self, request: &Request) -> Vec<Result<Reply, Failure>> {
        let before = self.asked.borrow().len();
        self.asked.borrow_mut().push(request.clone());
        if self.lost {
            return vec![Err(Failure::new(Exit::Unreachable, "no connection"))];
        }
        let replies = (self.answer)(request, before);
        let told = |reply| match reply {
            Reply::Refused(refusal) => Err(Failure::from(refusal)),
            reply => Ok(reply),
        };
        replies.into_iter().map(told).collect()
    }
}

/// A refusal.
pub(crate) fn refused(code: RefusalCode, message: &str) -> Vec<Reply> {
    let message = message.into();
    vec![Reply::Refused(Refusal { code, message })]
}

impl Control for Scripted {
    fn request(&self, request: &Request) -> Result<Reply, Failure> {
        self.replies(request).remove(0)
    }

    fn stream(
        &self,
        request: &Request,
        take: &mut dyn FnMut(Reply) -> Result<Flow, Failure>,
    ) -> Result<(), Failure> {
        for reply in self.replies(request) {
            if take(reply?)? == Flow::Enough {
                break;
            }
        }
        Ok(())
    }

    fn upload(&self, file: &FileRef, path: &Path) -> Result<(), Failure> {
        let bytes = fs::read(path)?;
        assert_eq!(file.bytes, Bytes(bytes.len() as u64), "{}", file.path);
        self.uploaded
            .borrow_mut()
            .push((file.sha256.clone(), bytes));
        self.replies(&Request::PutFile(file.clone()))
            .remove(0)
            .map(drop)
    }

    fn download(&self, request: &Request, folder: &Path) -> Result<Vec<FileRef>, Failure> {
        let mut files = Vec::new();
        for reply in self.replies(request) {
            if let Reply::File(file) = reply? {
                fs::write(folder.join(&file.path), "bytes")?;
                files.push(file);
            }
        }
        Ok(files)
    }

    fn again(&self) -> Result<(), Failure> {
        self.again.set(self.again.get() + 1);
        match self.lost {
            true => Err(Failure::new(Exit::Unreachable, "no connection")),
            false => Ok(()),
        }
    }
}
