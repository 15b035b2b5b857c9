//! The cache that the hub's own tools fill.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// A repository on the hub: `ORG/NAME`, or `ORG/NAME@REVISION`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HubId<'a> {
    org: &'a str,
    name: &'a str,
    revision: Option<&'a str>,
}

impl<'a> HubId<'a> {
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        let (id, revision) = match text.split_once('@') {
            Some((id, revision)) => (id, Some(revision)),
            None => (text, None),
        };
        let (org, name) = id.split_once('/')?;
        let is_word = |word: &str| {
            word.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
                && !word.is_empty()
                && !word.starts_with('.')
        };
        let is_id = is_word(org) && is_word(name) && revision.is_none_or(|r| !r.is_empty());
        is_id.then_some(Self { org, name, revision })
    }

    /// What to type to have it in the cache.
    pub(crate) fn download_command(&self) -> String {
        let revision = self.revision.map(|r| format!(" --revision {r}")).unwrap_or_default();
        format!("hf download {}/{}{revision}", self.org, self.name)
    }

    /// Its directory in the cache.
    pub(crate) fn locate(&self, cache: &Path) -> Result<PathBuf> {
        let repository = cache.join(format!("models--{}--{}", self.org, self.name));
        let revision = self.revision.unwrap_or("main");
        let commit = std::fs::read_to_string(repository.join("refs").join(revision));
        let commit = commit.as_deref().map_or(revision, str::trim);
        let snapshot = repository.join("snapshots").join(commit);
        if !snapshot.is_dir() {
            bail!(
                "`{}/{}` is neither a directory nor in the hub cache ({}); download it first, for \
                 example with `{}`",
                self.org,
                self.name,
                snapshot.display(),
                self.download_command()
            );
        }
        Ok(snapshot)
    }
}

/// The cache's directory, by the hub's own rules.
pub(crate) fn cache() -> Result<PathBuf> {
    cache_by(&|name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from))
        .or_else(|| Some(std::env::home_dir()?.join(".cache/huggingface/hub")))
        .context("there is no home directory; set HF_HUB_CACHE")
}

fn cache_by(variable: &dyn Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    variable("HF_HUB_CACHE")
        .or_else(|| variable("HUGGINGFACE_HUB_CACHE"))
        .or_else(|| Some(variable("HF_HOME")?.join("hub")))
        .or_else(|| Some(variable("XDG_CACHE_HOME")?.join("huggingface/hub")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_an_organisation_and_a_name() {
        let id = HubId::parse("Qwen/Qwen3.6-35B-A3B").expect("an id");
        assert_eq!((id.org, id.name, id.revision), ("Qwen", "Qwen3.6-35B-A3B", None));
        let id = HubId::parse("a/b@refs/pr/1").expect("an id");
        assert_eq!(id.download_command(), "hf download a/b --revision refs/pr/1");
        for text in ["demo", "a/b/c", "/b", "a/", "../b", "a/..", "a b/c", "a/b@", "~/b"] {
            assert_eq!(HubId::parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_cache_is_where_the_hub_puts_it() {
        let check = |variables: &[(&str, &str)], expected: Option<&str>| {
            let look = |name: &str| {
                variables.iter().find(|(n, _)| *n == name).map(|(_, value)| PathBuf::from(value))
            };
            assert_eq!(cache_by(&look), expected.map(PathBuf::from), "{variables:?}");
        };
        check(&[], None);
        check(&[("XDG_CACHE_HOME", "/x")], Some("/x/huggingface/hub"));
        check(&[("XDG_CACHE_HOME", "/x"), ("HF_HOME", "/h")], Some("/h/hub"));
        check(&[("HF_HOME", "/h"), ("HF_HUB_CACHE", "/c")], Some("/c"));
    }

    #[test]
    fn a_revision_is_a_branch_or_a_commit() {
        let cache = tempfile::tempdir().expect("a temporary directory");
        let repository = cache.path().join("models--a--b");
        std::fs::create_dir_all(repository.join("refs")).expect("made");
        std::fs::create_dir_all(repository.join("snapshots/c0ffee")).expect("made");
        std::fs::write(repository.join("refs/main"), "c0ffee\n").expect("written");
        for text in ["a/b", "a/b@main", "a/b@c0ffee"] {
            let id = HubId::parse(text).expect("an id");
            let found = id.locate(cache.path()).expect("in the cache");
            assert_eq!(found, repository.join("snapshots/c0ffee"));
        }
        let missing = HubId::parse("a/b@dev").expect("an id").locate(cache.path());
        let message = missing.expect_err("not there").to_string();
        assert!(message.contains("hf download a/b --revision dev"), "{message}");
    }
}
