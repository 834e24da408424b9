"""Random choices that depend only on a seed and an index."""
import random


class Dice:
    def __init__(self, seed, index):
        self._random = random.Random(f"{seed}/{index}")

    def pick(self, some):
        return self._random.choice(some)

    def drawn(self, weights):
        """A key of {choice: weight}."""
        return self._random.choices(list(weights), list(weights.values()))[0]

    def chance(self, share):
        return self._random.random() < share

    def number(self, low, high):
        return self._random.randint(low, high)

    def shuffled(self, some):
        return self._random.sample(some, len(some))
