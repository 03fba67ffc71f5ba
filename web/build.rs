//! A new file of the UI must rebuild the crate that embeds it.

fn main() {
    println!("cargo:rerun-if-changed=web/dist");
}
