//! A certificate, its key, and the authority that signed it: what a process proves itself with.
//!
//! One file holds all three as PEM texts (key, certificate, authority), so that a renewal replaces them at once.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use thiserror::Error;

use super::identity::{Identity, IdentityError};
use super::private_file::{self, PrivateFileError};
use crate::units::Micros;

/// Says why there is no credential.
#[derive(Debug, Error)]
pub enum CredentialError {
    /// The file.
    #[error(transparent)]
    File(#[from] PrivateFileError),
    /// Not the PEM texts that belong there.
    #[error(
        "a credential cannot be read: {what}; it holds a key, its certificate and the authority, as PEM texts"
    )]
    Unreadable {
        /// What is missing or broken.
        what: String,
    },
    /// The certificate.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// No key or request can be made.
    #[error("cannot make a key or a signing request: {0}")]
    Crypto(#[from] rcgen::Error),
}

/// What a process proves itself with.
pub struct Credential {
    /// Who it is.
    pub identity: Identity,
    /// From when to when it holds, since 1970.
    pub life: Range<Micros>,
    /// Its certificate, then the authority's.
    pub chain: [CertificateDer<'static>; 2],
    key: PrivateKeyDer<'static>,
    pem: String,
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential")
            .field("identity", &self.identity)
            .field("life", &self.life)
            .finish_non_exhaustive()
    }
}

impl Clone for Credential {
    fn clone(&self) -> Self {
        Self {
            identity: self.identity.clone(),
            life: self.life.clone(),
            chain: self.chain.clone(),
            key: self.key.clone_key(),
            pem: self.pem.clone(),
        }
    }
}

impl Credential {
    /// Reads one from its PEM texts.
    ///
    /// # Errors
    /// [`CredentialError`].
    pub fn from_pem(pem: String) -> Result<Self, CredentialError> {
        let unreadable = |what: String| CredentialError::Unreadable { what };
        let key = PrivateKeyDer::from_pem_slice(pem.as_bytes())
            .map_err(|error| unreadable(format!("no key: {error}")))?;
        let chain = certificates(&pem)?;
        let chain: [_; 2] = chain
            .try_into()
            .map_err(|found: Vec<_>| unreadable(format!("{} certificates", found.len())))?;
        let (identity, life) = Identity::of_certificate(&chain[0])?;
        Ok(Self {
            identity,
            life,
            chain,
            key,
            pem,
        })
    }

    /// Reads one from its file.
    ///
    /// # Errors
    /// [`CredentialError`].
    pub fn load(path: &Path) -> Result<Self, CredentialError> {
        Self::from_pem(private_file::read(path)?)
    }

    /// Writes it to its file, readable by its owner alone, in place of an older one.
    ///
    /// # Errors
    /// [`PrivateFileError`].
    pub fn save(&self, path: &Path) -> Result<(), PrivateFileError> {
        private_file::replace(path, self.pem.as_bytes())
    }

    /// The authority's certificate.
    #[must_use]
    pub fn authority(&self) -> &CertificateDer<'static> {
        &self.chain[1]
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &PrivateKeyDer<'static> {
        &self.key
    }

    /// When to ask for a fresh one: at two thirds of its life.
    #[must_use]
    pub fn renewal(&self) -> Micros {
        let life = self.life.end.since(self.life.start);
        self.life.start.plus(Micros(life.0 / 3 * 2))
    }
}

/// The certificates among PEM texts.
fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, CredentialError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    found.map_err(|error| CredentialError::Unreadable {
        what: format!("a certificate: {error}"),
    })
}

/// A fresh key and the request to certify it; whom it is for, the authority decides.
pub struct KeyRequest {
    key: KeyPair,
    /// PEM text of the signing request.
    pub signing_request: String,
}

impl fmt::Debug for KeyRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyRequest").finish_non_exhaustive()
    }
}

impl KeyRequest {
    /// Makes both.
    ///
    /// # Errors
    /// [`CredentialError::Crypto`].
    pub fn new() -> Result<Self, CredentialError> {
        let key = KeyPair::generate()?;
        let request = CertificateParams::default().serialize_request(&key)?;
        Ok(Self {
            signing_request: request.pem()?,
            key,
        })
    }

    /// With the certificates that came back.
    ///
    /// # Errors
    /// [`CredentialError`]; also when the certificate is for another key.
    pub fn certified(self, chain: &str) -> Result<Credential, CredentialError> {
        let credential = Credential::from_pem(format!("{}{chain}", self.key.serialize_pem()))?;
        let (_, parsed) = x509_parser::parse_x509_certificate(&credential.chain[0])
            .map_err(|error| IdentityError::Unreadable(error.to_string()))?;
        if *parsed.public_key().subject_public_key.data == *self.key.public_key_raw() {
            return Ok(credential);
        }
        Err(CredentialError::Unreadable {
            what: "the certificate is for another key".into(),
        })
    }
}
