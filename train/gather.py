#!/usr/bin/env python3
"""Clones of public repositories -> plain texts and MANIFEST.tsv. Public-domain books and permissively licensed code only.

    python3 gather.py --clones DIR --out TEXTS [--base BASE]

DIR holds one git repository per line of SOURCES.tsv, as OWNER+NAME/repo, OWNER+NAME or OWNER/NAME (bare or not); a file is read
at the commit found there, and the manifest names it. BASE: a folder of texts with its own MANIFEST.tsv, copied as they are.
Kinds: ebook (Standard Ebooks XHTML, in spine order, without front matter, notes and colophon), zh (a wrapped Project Gutenberg
text, unwrapped), code (files of some suffixes below given folders, joined into documents of about 200 KB), files (the same, each
file a document). Without --base all comes from SOURCES.tsv; the manifest in this folder was made with it (README.md).
"""
import argparse
import hashlib
import os
import posixpath
import re
import subprocess
import xml.etree.ElementTree as ET

HERE = os.path.dirname(os.path.abspath(__file__))
XHTML = "{http://www.w3.org/1999/xhtml}"
TYPE = "{http://www.idpf.org/2007/ops}type"
SKIP = ("titlepage", "halftitlepage", "imprint", "colophon", "uncopyright", "endnotes", "loi", "toc", "afterword")
DOC = 200_000


class Repo:
    def __init__(self, path):
        self.path = path
        self.commit = self.git("rev-parse", "HEAD").decode().strip()

    def git(self, *args):
        return subprocess.run(["git", "-C", self.path, *args], check=True, capture_output=True).stdout

    def names(self):
        return self.git("ls-tree", "-r", "--name-only", "HEAD").decode().splitlines()

    def text(self, name):
        return self.git("show", f"HEAD:{name}").decode("utf-8", "replace")


def find_repo(clones, source):
    owner, name = source.split("/")
    for p in (f"{owner}+{name}/repo", f"{owner}+{name}", f"{owner}/{name}"):
        if os.path.isdir(os.path.join(clones, p)):
            return Repo(os.path.join(clones, p))
    return None


# -- ebooks ----------------------------------------------------------------------------------------
def inline(e):
    """Text of an element: line breaks kept, references to notes dropped, white space folded."""
    out = [e.text or ""]
    for c in e:
        if "noteref" in c.get(TYPE, "") or c.tag in (XHTML + "img", XHTML + "svg"):
            pass
        elif c.tag == XHTML + "br":
            out.append("\x00")
        else:
            out.append(inline(c))
        out.append(c.tail or "")
    return "".join(out)


def tidy(s):
    s = s.replace("\u2060", "").replace("\ufeff", "").replace("\u00ad", "")
    s = s.replace("\u200a", " ").replace("\u00a0", " ")                      # hair spaces, and the no-break space of "Mr. Brooke"
    lines = [re.sub(r"[ \t\r\n]+", " ", p).strip() for p in s.split("\x00")]
    return "\n".join(l for l in lines if l)


BLOCKS = {XHTML + t for t in ("p", "h1", "h2", "h3", "h4", "h5", "h6", "li", "dt", "dd", "td", "th", "figcaption")}


def blocks(e):
    if e.tag == XHTML + "hgroup":
        yield "\n".join(filter(None, (tidy(inline(c)) for c in e)))
    elif e.tag in BLOCKS and not any(c.tag in BLOCKS for c in e.iter() if c is not e):
        yield tidy(inline(e))
    else:
        for c in e:
            yield from blocks(c)


def ebook(repo):
    opf = ET.fromstring(repo.text("src/epub/content.opf"))
    ns = {"o": "http://www.idpf.org/2007/opf"}
    href = {i.get("id"): i.get("href") for i in opf.findall("o:manifest/o:item", ns)}
    parts = []
    for ref in opf.findall("o:spine/o:itemref", ns):
        h = href[ref.get("idref")]
        if posixpath.basename(h).rsplit(".", 1)[0] in SKIP:
            continue
        body = ET.fromstring(repo.text("src/epub/" + h)).find(XHTML + "body")
        parts += [b for b in blocks(body) if b]
    return "\n\n".join(parts) + "\n"


# -- wrapped Chinese text ------------------------------------------------------------------------------
def zh(repo):
    name = next(n for n in repo.names() if re.fullmatch(r"\d+(-0)?\.txt", n))
    t = repo.text(name).replace("\r\n", "\n").lstrip("\ufeff")
    a = re.search(r"\*\*\* ?START OF .*?\*\*\*", t)
    b = re.search(r"\*\*\* ?END OF ", t)
    t = t[a.end() if a else 0:b.start() if b else len(t)]
    paras = []
    for line in t.split("\n"):
        fresh = line[:1] in (" ", "\u3000", "\t")
        s = re.sub(r"[ \u3000\t]+", " ", line).strip()
        if not s:
            paras.append("")
        elif fresh or not paras or not paras[-1]:
            paras.append(s)
        else:
            paras[-1] += s
    return "\n\n".join(p for p in paras if p) + "\n"


# -- code ------------------------------------------------------------------------------------------
def matching(repo, spec):
    """spec: suffixes and folders, e.g. '.c,.h:src/,lib/'."""
    suffixes, folders = spec.split(":")
    return sorted(n for n in repo.names() if n.endswith(tuple(suffixes.split(","))) and n.startswith(tuple(folders.split(","))))


def code(repo, spec):
    """Yields texts of about DOC bytes."""
    part, size = [], 0
    for n in matching(repo, spec):
        t = repo.text(n).replace("\r\n", "\n")
        if not 400 <= len(t) <= 600_000 or "generated" in t[:300].lower():
            continue
        part.append(t)
        size += len(t.encode())
        if size > DOC:
            yield "\n".join(part)
            part, size = [], 0
    if size > DOC // 8:
        yield "\n".join(part)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--clones", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--base")
    a = ap.parse_args()
    os.makedirs(a.out, exist_ok=True)
    rows = []

    def put(file, title, source, licence, data):
        if any(r[0] == file for r in rows):                                  # the base has it
            return
        with open(os.path.join(a.out, file), "wb") as f:
            f.write(data)
        rows.append((file, title, source, licence, str(len(data)), hashlib.sha256(data).hexdigest()))

    if a.base:
        for line in open(os.path.join(a.base, "MANIFEST.tsv"), encoding="utf-8").read().splitlines()[1:]:
            file, title, _, source, licence, _ = line.split("\t")
            with open(os.path.join(a.base, "text", file), "rb") as f:
                put(file, title, source, licence, f.read())
    for line in open(os.path.join(HERE, "SOURCES.tsv"), encoding="utf-8").read().splitlines()[1:]:
        kind, source, title, licence, spec = line.split("\t")
        repo = find_repo(a.clones, source)
        if repo is None:
            print("missing:", source)
            continue
        src = f"github:{source}@{repo.commit[:12]}"
        if kind == "ebook":
            put(source.split("/")[1] + ".txt", title, src, licence, ebook(repo).encode())
        elif kind == "zh":
            put(f"zh_{spec or source.split('/')[1]}.txt", title, src, licence, zh(repo).encode())
        elif kind == "files":
            for n in matching(repo, spec):
                stem = posixpath.basename(n).replace(".", "_")
                put(f"code_{stem if stem.startswith(title) else title + '_' + stem}.txt", title, src, licence, repo.text(n).encode())
        else:
            for i, t in enumerate(code(repo, spec)):
                put(f"code_{source.replace('/', '_')}_{i:02d}.txt", title, src, licence, t.encode())
    rows.sort()
    with open(os.path.join(a.out, "MANIFEST.tsv"), "w", encoding="utf-8") as f:
        f.write("file\ttitle\tsource\tlicence\tbytes\tsha256\n")
        f.writelines("\t".join(r) + "\n" for r in rows)
    print(f"{len(rows)} texts, {sum(int(r[4]) for r in rows) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
