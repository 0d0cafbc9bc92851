//! What lies between a socket and a connection: TLS, PEM files, and who a certificate proves.

pub mod identity;
pub mod pem;
pub mod tls;
