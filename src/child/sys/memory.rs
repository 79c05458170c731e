//! Memory that wrapper and guard share.

use crate::child::page::Fields;
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous};
use std::num::NonZeroUsize;
use std::ptr::NonNull;

/// Page size that is asked for; the kernel rounds up.
pub(super) const PAGE: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

/// A mapping that stays for the life of the process and is shared with its children: the fields, and
/// behind them room for text that is written once.
#[derive(Clone, Copy)]
pub(in crate::child) struct SharedPage {
    fields: NonNull<Fields>,
    room: usize,
}

// SAFETY: all fields are atomics, the text is written by one process before it tells the others, and the
// mapping is never unmapped.
unsafe impl Send for SharedPage {}
// SAFETY: as above.
unsafe impl Sync for SharedPage {}

impl SharedPage {
    /// With room for `room` bytes of text.
    pub(in crate::child) fn new(room: usize) -> nix::Result<Self> {
        let size = NonZeroUsize::new(size_of::<Fields>() + room).unwrap_or(PAGE);
        // SAFETY: an anonymous mapping at an address that the kernel chooses.
        let page = unsafe {
            let flags = MapFlags::MAP_SHARED | MapFlags::MAP_POPULATE;
            mmap_anonymous(None, size, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, flags)?
        };
        Ok(Self { fields: page.cast(), room })
    }

    pub(in crate::child) fn get(self) -> &'static Fields {
        // SAFETY: mapped, page-aligned, zeroed (a value of every atomic), never unmapped.
        unsafe { self.fields.as_ref() }
    }

    /// Writes the text. The caller orders this before whatever tells others to read it.
    ///
    /// # Panics
    /// When there is no room for it.
    pub(in crate::child) fn write_text(self, text: &[u8]) {
        assert!(text.len() <= self.room, "no room for the additions to the environment");
        // SAFETY: inside the mapping; nobody reads before being told, nobody else writes.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), self.fields.add(1).cast().as_ptr(), text.len());
        };
    }

    /// The text, and the zeroes behind it.
    pub(in crate::child) fn text(self) -> &'static [u8] {
        // SAFETY: inside the mapping, which is never unmapped; not written any more once somebody reads.
        unsafe { std::slice::from_raw_parts(self.fields.add(1).cast().as_ptr(), self.room) }
    }
}
