//! What any answer must hold, however bad the text. The targets call these functions; so does
//! whoever looks into a crash.

mod detokenize;
mod input;
mod parse;

pub use detokenize::check_detokenize;
pub use input::Input;
pub use parse::check_parse;
