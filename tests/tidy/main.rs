//! What keeps the house in order: layers, documents, tables and sources, looked at as text. No network, no hub.
#![cfg(test)]

mod documents;
mod layers;
mod manifests;
mod sources;
mod tables;
mod tree;
