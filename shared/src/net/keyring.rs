//! What TLS is given: which certificate to show, whom to believe, which ciphers.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::client::ResolvesClientCert;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::cipher_suite;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::authority::fingerprint;
use super::credential::Credential;

/// ring, with the cipher first that is cheapest where AES has instructions.
pub(super) fn provider() -> Arc<CryptoProvider> {
    let mut provider = rustls::crypto::ring::default_provider();
    provider.cipher_suites = vec![
        cipher_suite::TLS13_AES_128_GCM_SHA256,
        cipher_suite::TLS13_AES_256_GCM_SHA384,
        cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ];
    Arc::new(provider)
}

/// Believes one authority.
pub(super) fn roots(
    authority: &CertificateDer<'static>,
) -> Result<Arc<RootCertStore>, rustls::Error> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.clone())?;
    Ok(Arc::new(roots))
}

/// The certificate shown from now on; a renewal replaces it while connections stand.
#[derive(Debug)]
pub(super) struct Keyring(RwLock<Arc<CertifiedKey>>);

impl Keyring {
    pub(super) fn new(credential: &Credential) -> Result<Self, rustls::Error> {
        Ok(Self(RwLock::new(certified(credential)?)))
    }

    pub(super) fn replace(&self, credential: &Credential) -> Result<(), rustls::Error> {
        let fresh = certified(credential)?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }

    fn current(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

fn certified(credential: &Credential) -> Result<Arc<CertifiedKey>, rustls::Error> {
    let key = provider()
        .key_provider
        .load_private_key(credential.key().clone_key())?;
    Ok(Arc::new(CertifiedKey::new(credential.chain.to_vec(), key)))
}

impl ResolvesServerCert for Keyring {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}

impl ResolvesClientCert for Keyring {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// What a joiner believes: a chain that ends in the authority of its token.
#[derive(Debug)]
pub(super) struct ByFingerprint {
    pub(super) fingerprint: [u8; 32],
    pub(super) provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for ByFingerprint {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let mut shown = intermediates.iter();
        let authority = shown.find(|shown| fingerprint(shown) == self.fingerprint);
        let unknown = rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let authority = authority.ok_or(unknown)?.clone().into_owned();
        let provider = Arc::clone(&self.provider);
        let verifier = WebPkiServerVerifier::builder_with_provider(roots(&authority)?, provider)
            .build()
            .map_err(|error| rustls::Error::General(error.to_string()))?;
        verifier.verify_server_cert(end_entity, &[], server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("QUIC has TLS 1.3 only".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}
