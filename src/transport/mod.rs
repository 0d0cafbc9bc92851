//! What lies between a socket and a connection: the listener, TLS, PEM files, who a certificate proves, and
//! the upgrade.

pub mod addresses;
pub mod identity;
pub mod line;
pub mod listener;
pub mod pem;
pub mod refusals;
pub(crate) mod roots;
mod signatures;
pub mod sockets;
pub mod threads;
pub mod tls;
pub mod tls_stream;
pub mod trust;
pub mod upgrade;
pub mod validity;
pub mod wire;
