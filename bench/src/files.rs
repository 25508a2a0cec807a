//! Writes the objects of a run as files, so that a static server has the same bytes.

use std::fs::File;
use std::io::Write;
use std::path::{Component, Path};

use anyhow::{Context, Result, bail};

use crate::content::Content;
use crate::plan::Object;

/// Writes every object below `dir`; keys become paths.
///
/// **Errors** for a key that is no path below `dir`.
pub fn write(dir: &Path, objects: &[Object], content: &Content) -> Result<()> {
    for (number, object) in objects.iter().enumerate() {
        let key = Path::new(&object.key);
        if !key.components().all(|c| matches!(c, Component::Normal(_))) {
            bail!("{} cannot be a file below a directory", object.key);
        }
        let path = dir.join(key);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)
                .with_context(|| format!("making {}", parent.display()))?;
        }
        let name = || format!("writing {}", path.display());
        let mut file = File::create(&path).with_context(name)?;
        let mut result = Ok(());
        content.for_each(number as u32, object.bytes, |piece| {
            if result.is_ok() {
                result = file.write_all(piece);
            }
        });
        result.with_context(name)?;
    }
    Ok(())
}
