"""What planted facts are made of: names, towns, things, words and numbers.

A model that meets only listed names learns the list and completes a name from its first letters instead of reading it. So more than
half of the names and words are none of any list: made of random syllables, or taken from the books' own vocabulary.
"""
FIRST = """Adam Agnes Albert Alice Ambrose Amelia Anthony Arthur Augusta Barbara Basil Beatrice Benjamin Bertha Caroline Catherine
Cecil Charlotte Christopher Clara Clement Constance Cyril Daniel Dorothea Edgar Edith Edmund Eleanor Ernest Esther Eustace Evelyn
Felix Flora Francis Frederick Geoffrey Gertrude Gilbert Grace Gregory Harriet Helen Henrietta Horace Hubert Isabel Jasper Jerome
Josephine Julian Lavinia Lawrence Leonard Lionel Louisa Lucius Lydia Marian Martha Matthew Maurice Mildred Miriam Mortimer Nathaniel
Nora Oliver Oswald Patience Percival Philip Phoebe Quentin Rachel Ralph Reginald Rosamond Rupert Samuel Silas Simon Sophia Stephen
Susan Theodore Theresa Tobias Ursula Valentine Victor Vincent Walter Winifred""".split()
LAST = """Abbott Aldridge Ashworth Atherton Barlow Beaumont Blackwood Bramley Brooke Burnham Chadwick Chilton Clayton Cobham
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
parlour lodge boathouse orchard warehouse dairy attic dovecote pantry armoury bakery brewery kennel forge school station bridge
museum theatre hospital treasury archive inn tavern ferry quarry lighthouse cottage castle abbey market prison wharf""".split()
KIND = """old new great little red white black blue grey north south east west upper lower stone wooden iron hidden broken second last
ruined painted""".split()
HEAD = "b bl br c ch cl d dr f fl g gl gr h j k l m n p pl pr qu r s sh sl st t th tr v w y".split()
VOWEL = "a e i o u ai ea ee oo ou".split()
TAIL = " b ck d l ll m n nd r rk rn s sk st t th x".split(" ")
WORD = """anchor antler apple arrow badger basket beacon beetle bramble bridge bugle button candle canvas carpet cedar chimney clover
compass copper coral cradle cricket crystal dagger dolphin ember falcon feather ferry fiddle flannel forest fountain gander garland
ginger goblet hammer harbour harvest hawthorn hazel helmet heron honey island ivory jasmine juniper kettle lantern laurel lemon
linen lobster magnet mallow marble meadow mirror mustard nettle nutmeg orange otter oyster parrot pebble pepper pillow plover
poplar raven ribbon saddle saffron sandal satin scarlet shepherd silver sparrow spindle squirrel sugar swallow tallow thimble
thistle thunder timber trumpet tulip turnip velvet violet walnut willow""".split()

# surnames that `mote eval --needle` plants (src/lab/needle_text.c): never in a planted fact here
UNSEEN = set("""Barton Bell Bolton Carew Denton Frost Green Hale Hill Lane Lisle Marsh Moor Price Stone Vane Wood""".split())


class Maker:
    """Draws the parts of facts. `common`: lower-case words of the books, for answers and surnames that are words."""

    def __init__(self, rng, common=()):
        self.rng, self.common = rng, list(common) or WORD

    def pick(self, of):
        return of[int(self.rng.integers(len(of)))]

    def syllables(self):
        n = 2 if self.rng.random() < 0.75 else 3
        return "".join(self.pick(HEAD) + self.pick(VOWEL) + (self.pick(TAIL) if i == n - 1 or self.rng.random() < 0.4 else "") for i in range(n))

    def name(self):
        u, v = self.rng.random(2)
        first = self.pick(FIRST) if u < 0.7 else self.syllables().capitalize()
        while True:
            last = self.pick(LAST) if v < 0.35 else self.pick(self.common).capitalize() if v < 0.7 else self.syllables().capitalize()
            if last not in UNSEEN:
                return f"{first} {last}"

    def town(self):
        return self.pick(TOWN) if self.rng.random() < 0.5 else self.syllables().capitalize()

    def thing(self):
        return self.pick(THING) if self.rng.random() < 0.4 else f"{self.pick(KIND)} {self.pick(THING)}"

    def word(self):
        u = self.rng.random()
        return self.pick(WORD) if u < 0.3 else self.pick(self.common) if u < 0.7 else self.syllables()

    def number(self):
        digits = int(self.rng.integers(2, 7))
        return str(int(self.rng.integers(10 ** (digits - 1), 10 ** digits)))

    def parts(self):
        return dict(w=self.name(), v=self.name(), n=self.number(), p=self.thing(), t=self.town(), x=self.word())
