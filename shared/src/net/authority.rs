//! The certificate authority of a cluster, kept by its coordinator.
//!
//! - `AU-1` Whom a certificate is for is decided here; what a signing request says of names is ignored.
//! - `AU-2` A certificate of a member signs nothing.
//! - `AU-3` A certificate holds for a day and is renewed at two thirds, by whoever holds it: nobody is refused by name. What revokes is
//!   a new authority.

use std::fmt;
use std::path::Path;

use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PublicKeyData,
    SanType, SerialNumber,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use sha2::{Digest, Sha256};
use thiserror::Error;
use time::OffsetDateTime;

use super::credential::{Credential, CredentialError};
use super::identity::{Identity, IdentityError, uris_and_life};
use super::private_file::{self, PrivateFileError};
use crate::ids::ClusterName;
use crate::units::Micros;

/// How long a member's certificate holds, unless told otherwise: a day.
pub const MEMBER_LIFE: Micros = Micros::of_millis(24 * 3600 * 1000);

/// How long the authority's holds: ten years.
pub const AUTHORITY_LIFE: Micros = Micros::of_millis(3652 * 24 * 3600 * 1000);

/// How far the clocks of two machines may be apart: a certificate holds this much earlier than it was made.
pub const SKEW: Micros = Micros::of_millis(5 * 60 * 1000);

/// Largest signing request read, in bytes.
const MOST_REQUEST: usize = 16 << 10;

/// Says why the authority did not do what was asked.
#[derive(Debug, Error)]
pub enum AuthorityError {
    /// Its file.
    #[error(transparent)]
    File(#[from] PrivateFileError),
    /// Its file holds something else.
    #[error("{path} holds no authority of a cluster: {what}")]
    Unreadable {
        /// The file.
        path: String,
        /// What is wrong.
        what: String,
    },
    /// Another cluster's member.
    #[error(
        "{0} is not of this cluster: the authority of a cluster signs for its own members only"
    )]
    Foreign(Box<Identity>),
    /// Too long a request.
    #[error("a signing request of {bytes} bytes is over the limit of {MOST_REQUEST} bytes")]
    TooLong {
        /// Its size.
        bytes: usize,
    },
    /// A request that proves no key, or a failure of the library.
    #[error("the signing request cannot be honoured: {0}")]
    Crypto(#[from] rcgen::Error),
    /// What was just made cannot be read: a fault of ours.
    #[error(transparent)]
    Credential(#[from] CredentialError),
    /// No randomness.
    #[error("the system gives no randomness: {0}")]
    Randomness(#[from] getrandom::Error),
    /// An instant that a certificate cannot bear.
    #[error("the clock says {0:?} since 1970, which no certificate can bear: set the clock")]
    Clock(Micros),
}

/// The authority of one cluster.
pub struct Authority {
    cluster: ClusterName,
    certificate: CertificateDer<'static>,
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority")
            .field("cluster", &self.cluster)
            .finish_non_exhaustive()
    }
}

impl Authority {
    /// Makes one and writes it to a file that must not be there yet.
    ///
    /// # Errors
    /// [`AuthorityError`]; what is there is never overwritten.
    pub fn create(path: &Path, cluster: &ClusterName, now: Micros) -> Result<Self, AuthorityError> {
        let key = KeyPair::generate()?;
        let mut params = blank(now, AUTHORITY_LIFE, &format!("spotmux {cluster} authority"))?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.subject_alt_names = vec![uri(&format!("spotmux://{cluster}"))?];
        let certificate = params.self_signed(&key)?;
        let text = format!("{}{}", key.serialize_pem(), certificate.pem());
        private_file::create(path, text.as_bytes())?;
        Ok(Self {
            cluster: cluster.clone(),
            certificate: certificate.der().clone(),
            pem: certificate.pem(),
            issuer: Issuer::new(params, key),
        })
    }

    /// Reads one from its file.
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub fn load(path: &Path) -> Result<Self, AuthorityError> {
        let text = private_file::read(path)?;
        let unreadable = |what: String| AuthorityError::Unreadable {
            path: path.display().to_string(),
            what,
        };
        let key = KeyPair::from_pem(&text).map_err(|error| unreadable(error.to_string()))?;
        let certificate = CertificateDer::from_pem_slice(text.as_bytes())
            .map_err(|error| unreadable(error.to_string()))?;
        let (uris, _) =
            uris_and_life(&certificate).map_err(|error| unreadable(error.to_string()))?;
        let cluster = match uris.as_slice() {
            [uri] => uri
                .strip_prefix("spotmux://")
                .and_then(|name| name.parse().ok()),
            _ => None,
        };
        let cluster = cluster.ok_or_else(|| unreadable("it names no cluster".into()))?;
        let begin = text.find("-----BEGIN CERTIFICATE");
        let pem = begin.map_or_else(String::new, |at| text[at..].to_owned());
        Ok(Self {
            cluster,
            issuer: Issuer::from_ca_cert_der(&certificate, key)?,
            certificate,
            pem,
        })
    }

    /// Its cluster.
    #[must_use]
    pub fn cluster(&self) -> &ClusterName {
        &self.cluster
    }

    /// PEM text of its certificate.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// What a joiner knows it by.
    #[must_use]
    pub fn fingerprint(&self) -> [u8; 32] {
        fingerprint(&self.certificate)
    }

    /// Makes a key and certifies it.
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub fn issue(
        &self,
        identity: &Identity,
        life: Micros,
        now: Micros,
    ) -> Result<Credential, AuthorityError> {
        let key = KeyPair::generate()?;
        let chain = self.certify(&key, identity, life, now)?;
        let pem = format!("{}{chain}", key.serialize_pem());
        Ok(Credential::from_pem(pem)?)
    }

    /// Certifies the key of a signing request: PEM texts of the certificate and of the authority's.
    ///
    /// # Errors
    /// [`AuthorityError`]; a request that is not signed by its own key is refused.
    pub fn sign(
        &self,
        signing_request: &str,
        identity: &Identity,
        life: Micros,
        now: Micros,
    ) -> Result<String, AuthorityError> {
        let request = self.inspect(signing_request)?;
        self.certify(&request.public_key, identity, life, now)
    }

    /// Reads a signing request, and checks that it is signed by its own key.
    pub(super) fn inspect(
        &self,
        signing_request: &str,
    ) -> Result<CertificateSigningRequestParams, AuthorityError> {
        let bytes = signing_request.len();
        if bytes > MOST_REQUEST {
            return Err(AuthorityError::TooLong { bytes });
        }
        Ok(CertificateSigningRequestParams::from_pem(signing_request)?)
    }

    fn certify(
        &self,
        key: &impl PublicKeyData,
        identity: &Identity,
        life: Micros,
        now: Micros,
    ) -> Result<String, AuthorityError> {
        if identity.cluster != self.cluster {
            return Err(AuthorityError::Foreign(Box::new(identity.clone())));
        }
        let mut params = blank(now, life, identity.name.as_str())?;
        let dns = identity.role.dns_name();
        params.subject_alt_names = vec![
            uri(&identity.to_string())?,
            SanType::DnsName(Ia5String::try_from(dns)?),
        ];
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(key, &self.issuer)?;
        Ok(format!("{}{}", certificate.pem(), self.pem))
    }
}

/// What a joiner knows an authority by: the SHA-256 of its certificate.
#[must_use]
pub fn fingerprint(certificate: &CertificateDer<'_>) -> [u8; 32] {
    Sha256::digest(certificate).into()
}

fn uri(text: &str) -> Result<SanType, rcgen::Error> {
    Ok(SanType::URI(Ia5String::try_from(text)?))
}

/// A certificate of nobody for a while, with a serial number of its own.
fn blank(now: Micros, life: Micros, name: &str) -> Result<CertificateParams, AuthorityError> {
    let mut serial = [0; 16];
    getrandom::fill(&mut serial)?;
    // Positive, and of full length.
    serial[0] = serial[0] & 0x7f | 0x40;
    let instant = |at: Micros| {
        let seconds = i64::try_from(at.0 / 1_000_000).unwrap_or(i64::MAX);
        OffsetDateTime::from_unix_timestamp(seconds).map_err(|_| AuthorityError::Clock(at))
    };
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.serial_number = Some(SerialNumber::from(serial.to_vec()));
    params.not_before = instant(now.since(SKEW))?;
    params.not_after = instant(now.plus(life))?;
    Ok(params)
}

impl From<IdentityError> for AuthorityError {
    fn from(error: IdentityError) -> Self {
        Self::Credential(error.into())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::super::credential::KeyRequest;
    use super::super::identity::Role;
    use super::*;

    const NOW: Micros = Micros(1_790_000_000_000_000);

    fn member(cluster: &str, name: &str) -> Identity {
        Identity {
            cluster: cluster.parse().unwrap(),
            role: Role::GpuActor,
            name: name.parse().unwrap(),
        }
    }

    #[test]
    fn an_authority_outlives_its_process_and_is_never_overwritten() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("authority.pem");
        let cluster: ClusterName = "c".parse().unwrap();
        let made = Authority::create(&path, &cluster, NOW).unwrap();
        let again = Authority::create(&path, &cluster, NOW);
        assert!(matches!(
            again,
            Err(AuthorityError::File(PrivateFileError::Exists { .. }))
        ));
        let loaded = Authority::load(&path).unwrap();
        assert_eq!(loaded.cluster(), &cluster);
        assert_eq!(loaded.fingerprint(), made.fingerprint());
        assert_eq!(loaded.pem(), made.pem());
        let credential = loaded.issue(&member("c", "n1"), MEMBER_LIFE, NOW).unwrap();
        assert_eq!(credential.identity, member("c", "n1"));
        assert_eq!(fingerprint(credential.authority()), made.fingerprint());
        assert_eq!(credential.life, NOW.since(SKEW)..NOW.plus(MEMBER_LIFE));
        let two_thirds = NOW.since(SKEW).plus(Micros(57_800_000_000));
        assert_eq!(credential.renewal(), two_thirds);
        let foreign = loaded.issue(&member("d", "n1"), MEMBER_LIFE, NOW);
        assert!(matches!(foreign, Err(AuthorityError::Foreign(_))));
        // A credential comes back from its file.
        let file = root.path().join("identity.pem");
        credential.save(&file).unwrap();
        assert_eq!(
            Credential::load(&file).unwrap().identity,
            credential.identity
        );
        std::fs::write(&file, "-----BEGIN nothing").unwrap();
        assert!(Credential::load(&file).is_err());
        assert!(Authority::load(&file).is_err());
    }

    #[test]
    fn a_request_is_signed_for_whom_the_authority_says() {
        let root = tempfile::tempdir().unwrap();
        let cluster: ClusterName = "c".parse().unwrap();
        let authority = Authority::create(&root.path().join("a"), &cluster, NOW).unwrap();
        let request = KeyRequest::new().unwrap();
        let other = KeyRequest::new().unwrap();
        let sign = |request: &str| authority.sign(request, &member("c", "n2"), MEMBER_LIFE, NOW);
        let chain = sign(&request.signing_request).unwrap();
        assert!(
            other.certified(&chain).is_err(),
            "a certificate for another key passed"
        );
        let first = request.certified(&chain).unwrap();
        assert_eq!(first.identity, member("c", "n2"));
        let second = KeyRequest::new().unwrap();
        let second = second.signing_request;
        assert_ne!(sign(&second).unwrap(), chain);
        // A request with a byte of its body changed proves nothing any more.
        let mut damaged = second.into_bytes();
        let at = damaged.len() / 2;
        damaged[at] = if damaged[at] == b'A' { b'B' } else { b'A' };
        assert!(sign(&String::from_utf8(damaged).unwrap()).is_err());
        let long = sign(&"x".repeat(MOST_REQUEST + 1));
        assert!(matches!(long, Err(AuthorityError::TooLong { .. })));
    }
}
