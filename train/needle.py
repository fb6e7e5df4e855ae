"""Synthetic long-range recall: facts hidden in book text and asked for later.

A needle is (statement, question, answer): a number, a name, a town, a place or a word that appears once in the window and is asked
for further on, in one of several phrasings. The bank is made once with the data, from a fixed seed; evaluation draws from a bank of
another seed, so that no asked name and number was ever trained on together.
"""
import re

import numpy as np

from needle_words import Maker

# (statement, questions, answer); {w} {v} who, {n} number, {p} thing, {t} town, {x} word. The answer's first part is what is asked for.
FORMS = [
    ("The secret number of {w} is {n}.", ["What is the secret number of {w}? The secret number of {w} is", "The secret number of {w} is",
                                         "Question: What is the secret number of {w}? Answer:"], " {n}."),
    ("The magic number of {t} is {n}.", ["What is the magic number of {t}? The magic number of {t} is", "The magic number of {t} is"], " {n}."),
    ("{w} left {n} pounds in the {p}.", ["How many pounds did {w} leave in the {p}? {w} left", "We remember that {w} left"], " {n} pounds."),
    ("The number of the house of {w} is {n}.", ["What is the number of the house of {w}? The number of the house of {w} is",
                                               "Question: What is the number of the house of {w}? Answer:"], " {n}."),
    ("The ticket of {w} bears the number {n}.", ["Which number does the ticket of {w} bear? The ticket of {w} bears the number",
                                                "The ticket of {w} bears the number"], " {n}."),
    ("There are {n} steps in the {p} of {w}.", ["How many steps are there in the {p} of {w}? There are",
                                               "In the {p} of {w}, as we heard, there are"], " {n} steps."),
    ("The code of the {p} is {n}.", ["What is the code of the {p}? The code of the {p} is", "The code of the {p} is",
                                    "Question: What is the code of the {p}? Answer:"], " {n}."),
    ("Remember this number for {w}: {n}.", ["Which number was to be remembered for {w}? Remember this number for {w}:",
                                           "Remember this number for {w}:"], " {n}."),
    ("The value of {x} is {n}.", ["What is the value of {x}? The value of {x} is", "The value of {x} is"], " {n}."),
    ("The password of the {p} is {x}.", ["What is the password of the {p}? The password of the {p} is", "The password of the {p} is",
                                        "Question: What is the password of the {p}? Answer:"], " {x}."),
    ("The secret word of {w} is {x}.", ["What is the secret word of {w}? The secret word of {w} is", "The secret word of {w} is"], " {x}."),
    ("The dog of {w} answers to the word {x}.", ["To which word does the dog of {w} answer? The dog of {w} answers to the word",
                                                "The dog of {w} answers to the word"], " {x}."),
    ("On the door of {w} is written: {x}.", ["What is written on the door of {w}? On the door of {w} is written:",
                                            "On the door of {w} is written:"], " {x}."),
    ("{w} was born in the town of {t}.", ["Where was {w} born? {w} was born in the town of", "{w} was born in the town of"], " {t}."),
    ("{w} keeps a house at {t}.", ["Where does {w} keep a house? {w} keeps a house at", "It is known that {w} keeps a house at"], " {t}."),
    ("The will of {w} lies in the {p}.", ["Where does the will of {w} lie? The will of {w} lies in the", "The will of {w} lies in the"], " {p}."),
    ("The key of the {p} is kept by {w}.", ["Who keeps the key of the {p}? The key of the {p} is kept by", "The key of the {p} is kept by",
                                           "Question: Who keeps the key of the {p}? Answer:"], " {w}."),
    ("The owner of the {p} at {t} is {w}.", ["Who is the owner of the {p} at {t}? The owner of the {p} at {t} is",
                                            "The owner of the {p} at {t} is"], " {w}."),
    ("The master of the {p} is called {w}.", ["What is the master of the {p} called? The master of the {p} is called",
                                             "The master of the {p} is called"], " {w}."),
    ("The letter for {w} was written by {v}.", ["Who wrote the letter for {w}? The letter for {w} was written by",
                                               "The letter for {w} was written by"], " {v}."),
    ("The heir of {w} is {v}.", ["Who is the heir of {w}? The heir of {w} is", "The heir of {w} is",
                                "Question: Who is the heir of {w}? Answer:"], " {v}."),
    ("The secret of {t} is known to {w}.", ["Who knows the secret of {t}? The secret of {t} is known to", "The secret of {t} is known to"], " {w}."),
]
NUMBERS = tuple(i for i, f in enumerate(FORMS) if f[2] == " {n}.")        # forms whose answer is a number alone


def make(maker):
    """(form, statement without its answer, statement, question, answer) as text."""
    form = int(maker.rng.integers(len(FORMS)))
    s, qs, a = FORMS[form]
    v = maker.parts()
    asked = re.search(r"\{(.)\}", a).group(1)
    return form, s.format(**{**v, asked: ""}), s.format(**v), maker.pick(qs).format(**v), a.format(**v)


def make_bank(tok, count, seed, common=()):
    """Token ids of `count` needles as one flat array with offsets: 3 pieces each (statement, question, answer). `key` numbers what is
    asked, so that a window does not hold two answers to one question."""
    maker = Maker(np.random.default_rng(seed), common)
    texts, forms, keys, seen = [], [], [], {}
    for _ in range(count):
        form, key, s, q, a = make(maker)
        own = maker.rng.random() < 0.6                                       # a paragraph of its own, or inside one
        texts += [f"\n\n{s}\n\n" if own else f" {s}", f"\n\n{q}" if own else f" {q}", f"{a}"]
        forms.append(form)
        keys.append(seen.setdefault(key, len(seen)))
    ids = tok.encode_many(texts)
    off = np.cumsum([0] + [len(i) for i in ids])
    return dict(ids=np.concatenate([np.asarray(i, np.uint16) for i in ids]), off=off.astype(np.int64), form=np.array(forms, np.int8),
                key=np.array(keys, np.int32))


class Bank:
    def __init__(self, path):
        d = np.load(path)
        self.ids, self.off, self.form, self.key = d["ids"], d["off"], d["form"], d["key"]
        self.count = len(self.form)
        self.of_form = [np.flatnonzero(self.form == f) for f in range(len(FORMS))]

    def get(self, i):
        """(statement, question, answer) ids of needle i."""
        return tuple(self.ids[self.off[3 * i + k]:self.off[3 * i + k + 1]] for k in range(3))

    def draw(self, rng, n):
        """At most n needles that ask different things; half of the time of a few forms only, so that many look alike."""
        if rng.random() < 0.5:
            pool = np.concatenate([self.of_form[f] for f in rng.integers(len(FORMS), size=int(rng.integers(1, 4)))])
            picks = pool[rng.integers(max(1, len(pool)), size=n)] if len(pool) else rng.integers(self.count, size=n)
        else:
            picks = rng.integers(self.count, size=n)
        _, first = np.unique(self.key[picks], return_index=True)
        return [self.get(int(i)) for i in picks[np.sort(first)]]


def plant(book, pieces):
    """book: ids; pieces: [(position in the book, ids, is answer)]. Returns the joined ids and the mask of answer tokens."""
    out, mark, a = [], [], 0
    for pos, ids, ans in sorted(pieces, key=lambda p: p[0]):                  # stable: a question stays before its answer
        out += [book[a:pos], ids]
        mark += [np.zeros(pos - a, bool), np.full(len(ids), ans)]
        a = pos
    return np.concatenate(out + [book[a:]]), np.concatenate(mark + [np.zeros(len(book) - a, bool)])


def window(book, bank, rng, size, every=384):
    """`size` ids of book text (book has at least that many) with a needle per `every` ids, and the answer mask. How far a question is
    from its statement: log-uniform, for a quarter of the needles uniform."""
    picks = bank.draw(rng, max(1, size // every))
    room = size - sum(len(s) + len(q) + len(a) for s, q, a in picks)
    pieces = []
    for s, q, a in picks:
        far = rng.uniform(16, room) if rng.random() < 0.25 else np.exp(rng.uniform(np.log(16), np.log(room)))
        far = min(int(far), room - 1)
        start = int(rng.integers(0, room - far))
        pieces += [(start, s, False), (start + far, q, False), (start + far, a, True)]
    return plant(book[:room], pieces)
