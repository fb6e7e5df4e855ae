"""Synthetic long-range recall: facts hidden in book text and asked for later.

A needle is (statement, question, answer): a number, a name, a town or a word that appears once in the window and is asked for
further on, in one of several phrasings. The bank is made once with the data, from a fixed seed; evaluation draws from a bank of
another seed, so that no asked name and number was ever trained on together.
"""
import numpy as np

FIRST = """Adam Agnes Albert Alice Ambrose Amelia Anthony Arthur Augusta Barbara Basil Beatrice Benjamin Bertha Caroline Catherine
Cecil Charlotte Christopher Clara Clement Constance Cyril Daniel Dorothea Edgar Edith Edmund Eleanor Ernest Esther Eustace Evelyn
Felix Flora Francis Frederick Geoffrey Gertrude Gilbert Grace Gregory Harriet Helen Henrietta Horace Hubert Isabel Jasper Jerome
Josephine Julian Lavinia Lawrence Leonard Lionel Louisa Lucius Lydia Marian Martha Matthew Maurice Mildred Miriam Mortimer Nathaniel
Nora Oliver Oswald Patience Percival Philip Phoebe Quentin Rachel Ralph Reginald Rosamond Rupert Samuel Silas Simon Sophia Stephen
Susan Theodore Theresa Tobias Ursula Valentine Victor Vincent Walter Winifred""".split()
LAST = """Abbott Aldridge Ashworth Atherton Barlow Beaumont Blackwood Bramley Brooke Burnham Carew Chadwick Chilton Clayton Cobham
Cranston Dacre Dalton Darnley Denham Drummond Dunstan Eastwood Ellison Fairfax Fanshawe Farrant Fenwick Garrick Gilpin Goodwin
Gresham Hadley Halliday Harcourt Hartwell Haviland Heron Holloway Huntley Ingram Jessop Kendrick Kingsley Lambert Langley Latimer
Lockhart Lorimer Maitland Marchmont Markham Marlowe Merton Milbank Monckton Mowbray Musgrave Norwood Ormond Paget Pembroke Penrose
Percy Plowden Prescott Radcliffe Ramsden Redfern Ridley Rowland Sanders Selwyn Seymour Sinclair Somerset Stanhope Stirling Sutton
Talbot Tarrant Thornton Tilney Trevor Underhill Vernon Wainwright Walpole Warburton Wentworth Whitaker Winslow Woodward Wyndham
Yardley""".split()
TOWN = """Abingdon Alnwick Barnstaple Berwick Bodmin Bridport Burford Buxton Chepstow Cromer Dorking Dunwich Evesham Falmouth
Fowey Grantham Guildford Hereford Hexham Ipswich Kendal Keswick Lancaster Ledbury Lewes Ludlow Lynton Malvern Matlock Minehead
Morpeth Newark Oakham Oundle Penzance Pickering Reigate Richmond Ripon Romsey Salisbury Skipton Southwold Stamford Tavistock
Tenby Tewkesbury Thirsk Totnes Truro Wareham Warwick Wells Whitby Winchester Woodstock Worcester""".split()
THING = """casket chest closet cabinet cellar library granary stable tower chapel garden mill barn vault drawer desk trunk gallery
parlour lodge boathouse orchard warehouse dairy attic dovecote""".split()
WORD = """anchor antler apple arrow badger basket beacon beetle bramble bridge bugle button candle canvas carpet cedar chimney clover
compass copper coral cradle cricket crystal dagger dolphin ember falcon feather ferry fiddle flannel forest fountain gander garland
ginger goblet hammer harbour harvest hawthorn hazel helmet heron honey island ivory jasmine juniper kettle lantern laurel lemon
linen lobster magnet mallow marble meadow mirror mustard nettle nutmeg orange otter oyster parrot pebble pepper pillow plover
poplar raven ribbon saddle saffron sandal satin scarlet shepherd silver sparrow spindle squirrel sugar swallow tallow thimble
thistle thunder timber trumpet tulip turnip velvet violet walnut willow""".split()

# (statement, questions, answer); {w} who, {n} number, {p} thing, {t} town, {x} word
FORMS = [
    ("The secret number of {w} is {n}.", ["What is the secret number of {w}? The secret number of {w} is", "The secret number of {w} is",
                                         "Question: What is the secret number of {w}? Answer:"], " {n}."),
    ("The magic number of {t} is {n}.", ["What is the magic number of {t}? The magic number of {t} is", "The magic number of {t} is"], " {n}."),
    ("{w} left {n} pounds in the {p}.", ["How many pounds did {w} leave in the {p}? {w} left", "We remember that {w} left"], " {n} pounds."),
    ("The number of the house of {w} is {n}.", ["What is the number of the house of {w}? The number of the house of {w} is",
                                               "Question: What is the number of the house of {w}? Answer:"], " {n}."),
    ("The password of the {p} is {x}.", ["What is the password of the {p}? The password of the {p} is", "The password of the {p} is",
                                        "Question: What is the password of the {p}? Answer:"], " {x}."),
    ("The secret word of {w} is {x}.", ["What is the secret word of {w}? The secret word of {w} is", "The secret word of {w} is"], " {x}."),
    ("{w} was born in the town of {t}.", ["Where was {w} born? {w} was born in the town of", "{w} was born in the town of"], " {t}."),
    ("The key of the {p} is kept by {w}.", ["Who keeps the key of the {p}? The key of the {p} is kept by", "The key of the {p} is kept by",
                                           "Question: Who keeps the key of the {p}? Answer:"], " {w}."),
    ("The owner of the {p} at {t} is {w}.", ["Who is the owner of the {p} at {t}? The owner of the {p} at {t} is",
                                            "The owner of the {p} at {t} is"], " {w}."),
]
NUMBERS = (0, 1, 3)                         # forms whose answer is a number alone


def make(rng):
    """(form, statement, question, answer) as text."""
    form = int(rng.integers(len(FORMS)))
    s, qs, a = FORMS[form]
    pick = lambda l: l[int(rng.integers(len(l)))]
    digits = int(rng.integers(2, 7))
    v = dict(w=f"{pick(FIRST)} {pick(LAST)}", n=int(rng.integers(10 ** (digits - 1), 10 ** digits)), p=pick(THING), t=pick(TOWN), x=pick(WORD))
    return form, s.format(**v), pick(qs).format(**v), a.format(**v)


def make_bank(tok, count, seed):
    """Token ids of `count` needles as one flat array with offsets: 3 pieces each (statement, question, answer)."""
    rng = np.random.default_rng(seed)
    texts, forms = [], []
    for _ in range(count):
        form, s, q, a = make(rng)
        own = rng.random() < 0.6                                             # a paragraph of its own, or inside one
        texts += [f"\n\n{s}\n\n" if own else f" {s}", f"\n\n{q}" if own else f" {q}", f"{a}"]
        forms.append(form)
    ids = tok.encode_many(texts)
    off = np.cumsum([0] + [len(i) for i in ids])
    return dict(ids=np.concatenate([np.asarray(i, np.uint16) for i in ids]), off=off.astype(np.int64), form=np.array(forms, np.int8))


class Bank:
    def __init__(self, path):
        d = np.load(path)
        self.ids, self.off, self.form = d["ids"], d["off"], d["form"]
        self.count = len(self.form)

    def get(self, i):
        """(statement, question, answer) ids of needle i."""
        return tuple(self.ids[self.off[3 * i + k]:self.off[3 * i + k + 1]] for k in range(3))


def plant(book, pieces):
    """book: ids; pieces: [(position in the book, ids, is answer)]. Returns the joined ids and the mask of answer tokens."""
    out, mark, a = [], [], 0
    for pos, ids, ans in sorted(pieces, key=lambda p: p[0]):                  # stable: a question stays before its answer
        out += [book[a:pos], ids]
        mark += [np.zeros(pos - a, bool), np.full(len(ids), ans)]
        a = pos
    return np.concatenate(out + [book[a:]]), np.concatenate(mark + [np.zeros(len(book) - a, bool)])


def window(book, bank, rng, size, every=384):
    """`size` ids of book text (book has at least that many) with a needle per `every` ids, and the answer mask."""
    n = max(1, size // every)
    picks = [bank.get(int(i)) for i in rng.integers(bank.count, size=n)]
    room = size - sum(len(s) + len(q) + len(a) for s, q, a in picks)
    pieces = []
    for s, q, a in picks:
        far = min(int(np.exp(rng.uniform(np.log(16), np.log(room)))), room - 1)
        start = int(rng.integers(0, room - far))
        pieces += [(start, s, False), (start + far, q, False), (start + far, a, True)]
    return plant(book[:room], pieces)
