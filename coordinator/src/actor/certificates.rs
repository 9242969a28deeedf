//! Certificates for who joins and who renews.

use std::path::Path;

use shared::net::authority::Authority;
use shared::net::identity::Identity;
use shared::net::token::{Token, TokenStore};
use shared::units::Micros;
use shared::wire::request::{Refusal, RefusalCode, Reply};

use super::files::refusal;
use super::settings::Clock;

/// The cluster's authority, where certificates are made.
pub(super) struct Certificates {
    authority: Authority,
    tokens: TokenStore,
    life: Micros,
    clock: Clock,
}

impl Certificates {
    pub(super) fn new(authority: Authority, tokens: &Path, life: Micros, clock: Clock) -> Self {
        Self {
            authority,
            tokens: TokenStore::new(tokens),
            life,
            clock,
        }
    }

    /// For the holder of one that still holds.
    pub(super) fn renew(&self, identity: &Identity, signing_request: &str) -> Reply {
        let signed = self
            .authority
            .sign(signing_request, identity, self.life, (self.clock)());
        match signed {
            Ok(chain) => Reply::Certificate {
                chain,
                authority: self.authority.pem().to_owned(),
            },
            Err(error) => Reply::Refused(refusal(RefusalCode::Invalid, error.to_string())),
        }
    }

    /// For one who has a one-time token.
    pub(super) fn join(&self, token: &str, signing_request: &str) -> Reply {
        let forbidden = |error: &dyn std::fmt::Display| -> Refusal {
            refusal(RefusalCode::Forbidden, error.to_string())
        };
        let redeemed = token
            .parse::<Token>()
            .and_then(|token| self.tokens.redeem(&token, (self.clock)()));
        match redeemed {
            Ok(identity) => self.renew(&identity, signing_request),
            Err(error) => Reply::Refused(forbidden(&error)),
        }
    }

    pub(super) fn authority(&self) -> &Authority {
        &self.authority
    }

    pub(super) fn life(&self) -> Micros {
        self.life
    }
}
