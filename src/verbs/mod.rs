//! What runs no job: one file per verb.

mod generate;
mod status;

pub use generate::{completions, man};
pub use status::status;
