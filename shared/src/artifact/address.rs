//! Where a store is: a folder, or a bucket of a service that speaks S3.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};
use object_store::local::LocalFileSystem;
use object_store::path::Path as Location;
use object_store::{ObjectStore, RetryConfig};
use thiserror::Error;
use url::Url;

/// Says why there is no store at an address.
#[derive(Debug, Error)]
pub enum AddressError {
    /// Not a known form.
    #[error(
        "{text:?} is no address of a store: give a folder, file:///FOLDER, or s3://BUCKET/PREFIX"
    )]
    Unknown {
        /// As given.
        text: String,
    },
    /// The folder cannot be made.
    #[error("cannot make {path}: {source}")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// An option that a bucket does not have, or any of a folder.
    #[error(
        "{store} has no option {option:?}; of S3: region, access_key_id, secret_access_key, token, endpoint, virtual_hosted_style_request"
    )]
    Option {
        /// The store.
        store: String,
        /// The option.
        option: String,
    },
    /// The library refuses.
    #[error("cannot use {store}: {source}")]
    Refused {
        /// The store.
        store: String,
        /// Its reason.
        source: object_store::Error,
    },
}

/// A call is tried again for no longer than this, each try for half a minute at most: who called knows better how long it
/// can wait, and a drain must not be taken for one that hangs.
const RETRIED: Duration = Duration::from_secs(20);

/// Where a store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// In a folder of this machine, or one that is mounted.
    Folder(PathBuf),
    /// In a bucket.
    Bucket {
        /// Its name.
        bucket: String,
        /// What all keys start with; may be empty.
        prefix: String,
    },
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(path) => write!(f, "{}", path.display()),
            Self::Bucket { bucket, prefix } if prefix.is_empty() => write!(f, "s3://{bucket}"),
            Self::Bucket { bucket, prefix } => write!(f, "s3://{bucket}/{prefix}"),
        }
    }
}

impl FromStr for Address {
    type Err = AddressError;
    fn from_str(text: &str) -> Result<Self, AddressError> {
        let unknown = || AddressError::Unknown {
            text: text.to_owned(),
        };
        if text.is_empty() {
            return Err(unknown());
        }
        if !text.contains("://") {
            return Ok(Self::Folder(PathBuf::from(text)));
        }
        let url = Url::parse(text).map_err(|_| unknown())?;
        // A password in an address ends up in logs; a question or fragment means nothing here.
        let plain = url.username().is_empty() && url.password().is_none();
        if !plain || url.query().is_some() || url.fragment().is_some() {
            return Err(unknown());
        }
        match (url.scheme(), url.host_str()) {
            ("file", None | Some("")) => {
                url.to_file_path().map(Self::Folder).map_err(|()| unknown())
            }
            ("s3", Some(bucket)) if url.port().is_none() => Ok(Self::Bucket {
                bucket: bucket.to_owned(),
                prefix: url.path().trim_matches('/').to_owned(),
            }),
            _ => Err(unknown()),
        }
    }
}

impl Address {
    pub(super) fn connect(
        &self,
        options: &BTreeMap<String, String>,
    ) -> Result<(Arc<dyn ObjectStore>, Location), AddressError> {
        match self {
            Self::Folder(path) => match options.keys().next() {
                Some(option) => Err(self.no_option(option)),
                None => Ok((self.folder(path)?, Location::default())),
            },
            Self::Bucket { bucket, prefix } => {
                let prefix = Location::parse(prefix).map_err(|error| self.refused(error.into()))?;
                Ok((self.bucket(bucket, options)?, prefix))
            }
        }
    }

    fn folder(&self, path: &Path) -> Result<Arc<dyn ObjectStore>, AddressError> {
        std::fs::create_dir_all(path).map_err(|source| AddressError::Folder {
            path: path.to_path_buf(),
            source,
        })?;
        let folder = LocalFileSystem::new_with_prefix(path).map_err(|error| self.refused(error))?;
        Ok(Arc::new(folder.with_fsync(true)))
    }

    fn bucket(
        &self,
        bucket: &str,
        options: &BTreeMap<String, String>,
    ) -> Result<Arc<dyn ObjectStore>, AddressError> {
        // The HTTP client takes the provider of the process; that another was set before is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let retries = RetryConfig {
            retry_timeout: RETRIED,
            ..RetryConfig::default()
        };
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(bucket)
            .with_retry(retries)
            .with_conditional_put(S3ConditionalPut::ETagMatch);
        for (option, value) in options {
            let known: Result<AmazonS3ConfigKey, _> = option.parse();
            let known = known.map_err(|_| self.no_option(option))?;
            builder = builder.with_config(known, value);
        }
        let endpoint = options
            .get("endpoint")
            .or_else(|| options.get("aws_endpoint"));
        // Without TLS only where the operator wrote so.
        if endpoint.is_some_and(|endpoint| endpoint.starts_with("http://")) {
            builder = builder.with_allow_http(true);
        }
        let store = builder.build().map_err(|error| self.refused(error))?;
        Ok(Arc::new(store))
    }

    fn no_option(&self, option: &str) -> AddressError {
        AddressError::Option {
            store: self.to_string(),
            option: option.to_owned(),
        }
    }

    fn refused(&self, source: object_store::Error) -> AddressError {
        AddressError::Refused {
            store: self.to_string(),
            source,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn folders_and_buckets_are_told_apart() {
        let read = |text: &str| text.parse::<Address>();
        assert_eq!(read("a/b").unwrap(), Address::Folder("a/b".into()));
        assert_eq!(read("file:///a/b").unwrap(), Address::Folder("/a/b".into()));
        let bucket = read("s3://b/x/y/").unwrap();
        assert_eq!(bucket.to_string(), "s3://b/x/y");
        assert_eq!(read("s3://b").unwrap().to_string(), "s3://b");
        for bad in [
            "",
            "gs://b",
            "s3://",
            "s3://u:p@b",
            "file://host/a",
            "s3://b?x=1",
            "https://b/x",
        ] {
            assert!(
                matches!(read(bad), Err(AddressError::Unknown { .. })),
                "{bad}"
            );
        }
        let options = BTreeMap::from([("colour".to_owned(), "red".to_owned())]);
        assert!(matches!(
            bucket.connect(&options),
            Err(AddressError::Option { .. })
        ));
        let folder = read("/tmp").unwrap();
        assert!(matches!(
            folder.connect(&options),
            Err(AddressError::Option { .. })
        ));
    }
}
