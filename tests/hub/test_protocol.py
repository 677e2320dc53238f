"""The protocol, as the real client speaks it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from huggingface_hub import HfApi, hf_hub_download, snapshot_download
from huggingface_hub.errors import (
    EntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.hf_api import RepoFile, RepoFolder

from harness.hub import Hub, HubError
from tests.kit.hub_client import BIG, Ask


def git_blob(data: bytes) -> str:
    return hashlib.sha1(f"blob {len(data)}\0".encode() + data, usedforsecurity=False).hexdigest()


@pytest.fixture(autouse=True)
def no_public_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    # The client library asks the public hub for a list of its own, once; no test may wait for an
    # answer.
    monkeypatch.setattr(
        "huggingface_hub.utils._detect_agent._registry", {"standardEnvVars": [], "harnesses": {}}
    )


CONFIG = "/acme/tiny/resolve/main/config.json"


def test_the_real_client_sees_repositories_trees_and_revisions(folder: Path) -> None:
    """model_info, list_repo_tree, list_repo_refs and list_repo_commits tell what lies in the
    folder.
    """
    with Hub(folder) as hub:
        api = HfApi(endpoint=hub.endpoint_for("c"), token=False)
        info = api.model_info("acme/tiny")
        tree = list(api.list_repo_tree("acme/tiny", recursive=True, expand=True))
        flat = list(api.list_repo_tree("acme/tiny", "nested"))
        refs = api.list_repo_refs("acme/tiny")
        commits = api.list_repo_commits("acme/tiny", revision="v1.0")
        old = api.model_info("acme/tiny", revision="v1.0")
    assert info.sha is not None
    assert "base_model:mistralai/Some" in (info.tags or [])
    files = {entry.path: entry for entry in tree if isinstance(entry, RepoFile)}
    assert set(files) == {sibling.rfilename for sibling in info.siblings or []}
    assert files["config.json"].blob_id == git_blob(b'{"model_type": "llama"}')
    assert files["tokenizer.model"].lfs is not None
    assert files["tokenizer.model"].lfs.sha256 == hashlib.sha256(b"pieces").hexdigest()
    assert [type(entry) for entry in flat] == [RepoFolder]
    assert [tag.target_commit for tag in refs.tags] == [old.sha] == [commits[0].commit_id]
    assert old.sha != info.sha


def test_the_real_client_downloads_by_branch_tag_and_commit(folder: Path, tmp_path: Path) -> None:
    """Files arrive with their bytes, under the commit that the hub named."""
    with Hub(folder) as hub:
        api = HfApi(endpoint=hub.endpoint, token=False)
        commit = str(api.model_info("acme/tiny", revision="v1.0").sha)
        for revision in ("v1.0", commit, commit[:10]):
            path = hf_hub_download(
                "acme/tiny",
                "config.json",
                revision=revision,
                endpoint=hub.endpoint,
                cache_dir=tmp_path / revision,
            )
            assert Path(path).read_text() == '{"model_type": "gpt2"}'
            assert commit in path
        whole = Path(
            snapshot_download("acme/tiny", endpoint=hub.endpoint, cache_dir=tmp_path / "whole")
        )
    assert (whole / "tokenizer.json").read_bytes() == BIG
    assert (whole / "nested" / "deep" / "file.txt").read_text() == "deep"
    assert (whole / "empty.txt").read_bytes() == b""


def test_what_is_not_there_is_told_by_kind(folder: Path, tmp_path: Path) -> None:
    """The real client tells a missing file, revision and repository apart.

    A missing file is written into its cache.
    """
    with Hub(folder) as hub:
        api = HfApi(endpoint=hub.endpoint, token=False)
        with pytest.raises(EntryNotFoundError):
            hf_hub_download(
                "acme/tiny", "absent.json", endpoint=hub.endpoint, cache_dir=tmp_path / "c"
            )
        with pytest.raises(RevisionNotFoundError):
            api.model_info("acme/tiny", revision="absent")
        with pytest.raises(RepositoryNotFoundError):
            api.model_info("acme/absent")
        with pytest.raises(EntryNotFoundError):
            list(api.list_repo_tree("acme/tiny", "absent"))
    assert [path.name for path in (tmp_path / "c").rglob(".no_exist/*/*")] == ["absent.json"]


def test_a_tree_comes_in_pages(folder: Path, ask: Ask) -> None:
    """A long listing has links to its next pages, which the real client follows, client name
    included.
    """
    for number in range(230):
        (folder / "acme" / "tiny" / f"extra-{number:03d}.txt").write_text(str(number))
    with Hub(folder) as hub:
        listed = list(
            HfApi(endpoint=hub.endpoint_for("c"), token=False).list_repo_tree(
                "acme/tiny", expand=True
            )
        )
        first = ask(hub, "/api/models/acme/tiny/tree/main?expand=true&limit=7", client="c")
        trees = [one for one in hub.requests() if one.role == "tree"]
    assert len({entry.path for entry in listed}) == len(listed) == 230 + 7
    assert (
        f"<{hub.endpoint}/client/c/api/models/acme/tiny/tree/main?expand=true&limit=7&cursor=7>"
        in first.headers["Link"]
    )
    assert len(trees) == 4
    assert {one.client for one in trees} == {"c"}


def test_headers_and_ranges(folder: Path, ask: Ask) -> None:
    """HEAD tells ETag, commit and length.

    Ranges give the bytes asked for, and 416 beyond the end.
    """
    with Hub(folder) as hub:
        head = ask(hub, "/acme/tiny/resolve/main/tokenizer.json", "HEAD")
        lfs = ask(hub, "/acme/tiny/resolve/main/tokenizer.model", "HEAD")
        middle = ask(hub, "/acme/tiny/resolve/main/tokenizer.json", Range="bytes=300000-700000")
        last = ask(hub, "/acme/tiny/resolve/main/tokenizer.json", Range="bytes=-5")
        rest = ask(hub, "/acme/tiny/resolve/main/tokenizer.json", Range="bytes=1048570-")
        beyond = ask(hub, "/acme/tiny/resolve/main/tokenizer.json", Range="bytes=1048576-")
        empty = ask(hub, "/acme/tiny/resolve/main/empty.txt", Range="bytes=-5")
    assert head.headers["Content-Length"] == str(len(BIG))
    assert head.headers["Accept-Ranges"] == "bytes"
    assert head.headers["ETag"] == '"' + git_blob(BIG) + '"'
    assert len(head.headers["X-Repo-Commit"]) == 40
    assert (
        lfs.headers["X-Linked-Etag"]
        == lfs.headers["ETag"]
        == '"' + hashlib.sha256(b"pieces").hexdigest() + '"'
    )
    assert lfs.headers["X-Linked-Size"] == "6"
    assert (middle.status, middle.body) == (206, BIG[300000:700001])
    assert middle.headers["Content-Range"] == f"bytes 300000-700000/{len(BIG)}"
    assert (last.body, rest.body) == (BIG[-5:], BIG[1048570:])
    assert (beyond.status, beyond.headers["Content-Range"]) == (416, f"bytes */{len(BIG)}")
    assert (empty.status, "Content-Range" in empty.headers) == (200, False)


def test_commits_follow_from_bytes(folder: Path, tmp_path: Path) -> None:
    """The same files elsewhere have the same commit; one other byte has another."""
    copy = tmp_path / "elsewhere" / "acme" / "other"
    copy.mkdir(parents=True)
    (copy / "config.json").write_text('{"model_type": "gpt2"}')
    with Hub(folder) as one, Hub(tmp_path / "elsewhere") as two:
        first = one.repositories["acme/tiny"].revisions["v1.0"].commit
        assert two.repositories["acme/other"].revisions["main"].commit == first
    (copy / "config.json").write_text('{"model_type": "gpt3"}')
    with Hub(tmp_path / "elsewhere") as two:
        assert two.repositories["acme/other"].revisions["main"].commit != first


def test_what_cannot_be_served_is_refused_at_start(folder: Path, tmp_path: Path) -> None:
    """No folder, an empty one, and a link that leaves the folder are errors that name the place."""
    with pytest.raises(HubError, match="does not exist"):
        Hub(tmp_path / "absent").start()
    (tmp_path / "empty").mkdir()
    with pytest.raises(HubError, match="contains no repository"):
        Hub(tmp_path / "empty").start()
    (tmp_path / "secret").write_text("secret")
    (folder / "acme" / "tiny" / "link.txt").symlink_to(tmp_path / "secret")
    with pytest.raises(HubError, match=r"link\.txt is a link to a place outside"):
        Hub(folder).start()


def test_a_file_that_changes_while_served_is_an_error(folder: Path, ask: Ask) -> None:
    """What changed under the hub is answered with 500 and a reason, never with other bytes under an
    old ETag.
    """
    with Hub(folder) as hub:
        (folder / "acme" / "tiny" / "config.json").write_text('{"model_type": "opt"}!!')
        reply = ask(hub, CONFIG)
        (line,) = hub.requests()
    assert reply.status == 500
    assert "changed after the hub started" in line.note


def test_two_hubs_never_share_a_port(folder: Path) -> None:
    """A second hub on a taken port says so."""
    with Hub(folder) as hub, pytest.raises(HubError, match="cannot listen on"):
        Hub(folder, port=int(hub.endpoint.rpartition(":")[2])).start()
