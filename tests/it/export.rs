//! A log leaves one server and arrives in another as the very same bytes, or not at all.

mod artifacts;
mod cut;
mod owners;
mod refused;
mod round;
mod trees;
mod turns;
mod world;
