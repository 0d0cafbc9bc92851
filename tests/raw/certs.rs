//! Certificates: those that the hub's own command issues, and odd ones signed by the same CA.

use std::path::Path;
use std::process::Command;

use rcgen::{CertificateParams, DnType, Issuer, KeyPair, SanType};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// A certificate chain and its key.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

impl Identity {
    /// What `agent-reach certs issue NAME --dir DIR` makes.
    pub(crate) fn issue(name: &str, dir: &Path) -> Self {
        run(&["certs", "issue", name, "--dir", path(dir)]);
        let agents = dir.join("agents");
        Self {
            chain: read_chain(&agents.join(format!("{name}.pem"))),
            key: PrivateKeyDer::from_pem_file(agents.join(format!("{name}-key.pem"))).expect("the key"),
        }
    }

    /// A client certificate of the CA in `dir` with exactly these subject alternative names and common name.
    pub(crate) fn odd(dir: &Path, common_name: &str, names: Vec<SanType>) -> Self {
        let read = |file: &str| std::fs::read_to_string(dir.join(file)).expect("the CA's files");
        let ca_key = KeyPair::from_pem(&read("ca-key.pem")).expect("the CA's key");
        let issuer = Issuer::from_ca_cert_pem(&read("ca.pem"), ca_key).expect("the CA");
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        params.subject_alt_names = names;
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &issuer).expect("a certificate");
        Self {
            chain: vec![certificate.der().clone()],
            key: PrivateKeyDer::try_from(key.serialize_der()).expect("a PKCS #8 key"),
        }
    }

    /// The identity as policy names it: the SPIFFE URI in the certificate.
    pub(crate) fn name(&self) -> String {
        let bytes: &[u8] = self.chain.first().expect("a leaf");
        let start = bytes.windows(9).position(|part| part == b"spiffe://").expect("a SPIFFE URI");
        let length = usize::from(bytes[start - 1]);
        String::from_utf8(bytes[start..start + length].to_vec()).expect("ASCII")
    }

    /// The same, to be used twice.
    pub(crate) fn copy(&self) -> Self {
        Self { chain: self.chain.clone(), key: self.key.clone_key() }
    }
}

/// A URI as a subject alternative name.
pub(crate) fn uri(text: &str) -> SanType {
    SanType::URI(text.try_into().expect("ASCII"))
}

/// A DNS name as a subject alternative name.
pub(crate) fn dns(text: &str) -> SanType {
    SanType::DnsName(text.try_into().expect("ASCII"))
}

/// The certificates of a PEM file.
pub(crate) fn read_chain(file: &Path) -> Vec<CertificateDer<'static>> {
    let certificates = CertificateDer::pem_file_iter(file).expect("a PEM file");
    certificates.map(|certificate| certificate.expect("a certificate")).collect()
}

/// Runs the binary with `arguments` and expects it to succeed; its stdout.
pub(crate) fn run(arguments: &[&str]) -> String {
    let output =
        Command::new(env!("CARGO_BIN_EXE_agent-reach")).args(arguments).output().expect("the binary");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "agent-reach {arguments:?} failed: {stderr}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// A path as an argument.
pub(crate) fn path(path: &Path) -> &str {
    path.to_str().expect("a UTF-8 path")
}
