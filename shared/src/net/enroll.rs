//! The coordinator's side of joining and renewing: the authority, its tokens, and the replies.

use super::authority::{Authority, AuthorityError};
use super::endpoint::Peer;
use super::identity::Identity;
use super::token::{Token, TokenError, TokenStore};
use crate::hexadecimal::lower as hex;
use crate::units::Micros;
use crate::wire::request::{Joining, Refusal, RefusalCode, Reply};

/// Gives certificates to those who may have one.
#[derive(Debug)]
pub struct Enroller {
    authority: Authority,
    tokens: TokenStore,
    life: Micros,
    settings: Vec<(String, String)>,
}

impl Enroller {
    /// With an authority and the tokens it honours; certificates hold for so long. Who joins is told these settings.
    #[must_use]
    pub fn new(
        authority: Authority,
        tokens: TokenStore,
        life: Micros,
        settings: Vec<(String, String)>,
    ) -> Self {
        Self {
            authority,
            tokens,
            life,
            settings,
        }
    }

    /// The authority.
    #[must_use]
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Makes a token for one joiner.
    ///
    /// # Errors
    /// [`TokenError`].
    pub fn invite(&self, identity: &Identity, expires: Micros) -> Result<Token, TokenError> {
        self.tokens
            .make(identity, self.authority.fingerprint(), expires)
    }

    /// Answers [`Request::Join`](crate::wire::request::Request::Join). Blocks for a file or two.
    #[must_use]
    pub fn join(&self, joining: &Joining, now: Micros) -> Reply {
        // Looks at the request first: a broken one must not use the token up.
        if let Err(error) = self.authority.inspect(&joining.signing_request) {
            return refused(RefusalCode::Invalid, &error);
        }
        let redeemed = joining.token.parse().and_then(|token: Token| {
            let fits = |made: &Identity| fits(&token, joining, made);
            self.tokens.redeem(&token, now, fits)
        });
        match redeemed {
            Ok(identity) => match self.certify(&identity, &joining.signing_request, now) {
                Reply::Certificate { chain, .. } => Reply::Joined {
                    chain,
                    settings: self.settings.clone(),
                },
                refused => refused,
            },
            Err(error @ (TokenError::Malformed | TokenError::OtherMember { .. })) => {
                refused(RefusalCode::Invalid, &error)
            }
            Err(error @ (TokenError::Unknown { .. } | TokenError::Expired { .. })) => {
                refused(RefusalCode::Forbidden, &error)
            }
            Err(error) => refused(RefusalCode::Internal, &error),
        }
    }

    /// Answers [`Request::Renew`](crate::wire::request::Request::Renew): for the peer itself, if its certificate holds.
    #[must_use]
    pub fn renew(&self, peer: &Peer, signing_request: &str, now: Micros) -> Reply {
        if now >= peer.until {
            let message = "the certificate of this connection expired: join again with a new token";
            return refused(RefusalCode::Forbidden, &message);
        }
        self.certify(&peer.identity, signing_request, now)
    }

    fn certify(&self, identity: &Identity, signing_request: &str, now: Micros) -> Reply {
        match self
            .authority
            .sign(signing_request, identity, self.life, now)
        {
            Ok(chain) => Reply::Certificate {
                chain,
                authority: self.authority.pem().to_owned(),
            },
            Err(error @ (AuthorityError::Crypto(_) | AuthorityError::TooLong { .. })) => {
                refused(RefusalCode::Invalid, &error)
            }
            Err(error) => refused(RefusalCode::Internal, &error),
        }
    }
}

/// Whether a token was made for who shows it.
fn fits(token: &Token, joining: &Joining, made: &Identity) -> Result<(), TokenError> {
    let cluster = joining.cluster.as_ref();
    let same = cluster.is_none_or(|cluster| *cluster == made.cluster)
        && joining.role == made.role.as_str()
        && joining.name == made.name;
    if same {
        return Ok(());
    }
    let cluster = cluster.unwrap_or(&made.cluster);
    Err(TokenError::OtherMember {
        id: hex(&token.id),
        made: Box::new(made.clone()),
        asked: format!("spotmux://{cluster}/{}/{}", joining.role, joining.name),
    })
}

fn refused(code: RefusalCode, why: &dyn std::fmt::Display) -> Reply {
    Reply::Refused(Refusal {
        code,
        message: why.to_string(),
    })
}
