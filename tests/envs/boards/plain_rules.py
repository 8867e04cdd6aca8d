"""The rules of the board games once more, as plain Python loops over lists: slow, and written without the package.

Each game is an object that plays one game: `player`, `cells` (owner of each cell, -1 none), `legal()`, `play(action)`,
`is_over`, `outcome`, `planes()` (the planes of the observation, as lists of cells).
"""


class PlainGame:
    rows = columns = 0

    def __init__(self):
        self.player, self.is_over, self.outcome = 0, False, [0, 0]
        self.cells = [-1] * (self.rows * self.columns)

    def end(self, winner):
        self.is_over = True
        if winner is not None:
            self.outcome = [1 if player == winner else -1 for player in range(2)]

    def planes(self):
        return [[owner == who for owner in self.cells] for who in (self.player, 1 - self.player)]

    def beside(self, cell, directions):
        for down, right in directions:
            row, column = cell // self.columns + down, cell % self.columns + right
            if 0 <= row < self.rows and 0 <= column < self.columns:
                yield row * self.columns + column

    def run(self, cell, down, right):
        """The cells from `cell` on in one direction, up to the edge, without it."""
        cells, row, column = [], cell // self.columns + down, cell % self.columns + right
        while 0 <= row < self.rows and 0 <= column < self.columns:
            cells.append(row * self.columns + column)
            row, column = row + down, column + right
        return cells

    def group(self, cell, directions):
        """The cells of the same owner that are connected with `cell`."""
        found, todo = {cell}, [cell]
        while todo:
            for other in self.beside(todo.pop(), directions):
                if other not in found and self.cells[other] == self.cells[cell]:
                    found.add(other)
                    todo.append(other)
        return found


class PlainRow(PlainGame):
    """Who first has `length` in a row wins."""

    length = 0

    def put(self, cell):
        self.cells[cell] = self.player
        for down, right in ((0, 1), (1, 0), (1, 1), (1, -1)):
            count = 1
            for sign in (1, -1):
                for other in self.run(cell, sign * down, sign * right):
                    if self.cells[other] != self.player:
                        break
                    count += 1
            if count >= self.length:
                self.end(self.player)
        if not self.is_over and -1 not in self.cells:
            self.end(None)
        self.player = 1 - self.player


class PlainTicTacToe(PlainRow):
    rows = columns = length = 3

    def legal(self):
        return [owner == -1 for owner in self.cells]

    def play(self, action):
        self.put(action)


class PlainConnectFour(PlainRow):
    rows, columns, length = 6, 7, 4

    def legal(self):
        return [self.cells[column] == -1 for column in range(7)]

    def play(self, action):
        self.put(max(cell for cell in range(action, 42, 7) if self.cells[cell] == -1))


class PlainOthello(PlainGame):
    rows = columns = 8

    def __init__(self):
        super().__init__()
        self.cells[28] = self.cells[35] = 0
        self.cells[27] = self.cells[36] = 1
        self.num_passes = 0

    def turned(self, cell):
        found = []
        for down, right in [(d, r) for d in (-1, 0, 1) for r in (-1, 0, 1) if (d, r) != (0, 0)]:
            row = []
            for other in self.run(cell, down, right):
                if self.cells[other] == 1 - self.player:
                    row.append(other)
                else:
                    if self.cells[other] == self.player:
                        found += row
                    break
        return found

    def legal(self):
        cells = [self.cells[cell] == -1 and bool(self.turned(cell)) for cell in range(64)]
        return [*cells, not any(cells)]

    def play(self, action):
        self.num_passes = self.num_passes + 1 if action == 64 else 0
        if action < 64:
            for cell in [action, *self.turned(action)]:
                self.cells[cell] = self.player
        mine, theirs = (self.cells.count(who) for who in (self.player, 1 - self.player))
        if -1 not in self.cells or theirs == 0 or self.num_passes == 2:
            self.end(None if mine == theirs else self.player if mine > theirs else 1 - self.player)
        self.player = 1 - self.player


class PlainHex(PlainGame):
    rows = columns = 11
    directions = ((-1, 0), (-1, 1), (0, -1), (0, 1), (1, -1), (1, 0))
    num_plies = 0

    def legal(self):
        return [*(owner == -1 for owner in self.cells), self.num_plies == 1]

    def planes(self):
        return [*super().planes(), [self.player == 1] * 121, [self.num_plies == 1] * 121]

    def play(self, action):
        if action == 121:
            stone = self.cells.index(0)
            self.cells[stone] = -1
            action = stone % 11 * 11 + stone // 11
        self.cells[action] = self.player
        places = {divmod(cell, 11)[self.player] for cell in self.group(action, self.directions)}  # rows, or columns
        if {0, 10} <= places:
            self.end(self.player)
        self.num_plies += 1
        self.player = 1 - self.player


class PlainGo(PlainGame):
    rows = columns = 9
    directions = ((-1, 0), (1, 0), (0, -1), (0, 1))
    komi, most_plies, history = 7.5, 162, 8

    def __init__(self):
        super().__init__()
        self.ko, self.num_passes, self.positions = None, 0, []
        self.has_repeated = False

    def liberties(self, cell):
        return {
            free
            for stone in self.group(cell, self.directions)
            for free in self.beside(stone, self.directions)
            if self.cells[free] == -1
        }

    def taken(self, action):
        """The other player's stones that lose their last liberty at `action`."""
        found = set()
        for cell in self.beside(action, self.directions):
            if self.cells[cell] == 1 - self.player and self.liberties(cell) == {action}:
                found |= self.group(cell, self.directions)
        return found

    def is_legal(self, action):
        if self.cells[action] != -1 or action == self.ko:
            return False
        if self.taken(action):
            return True
        self.cells[action] = self.player
        has_liberty = bool(self.liberties(action))
        self.cells[action] = -1
        return has_liberty

    def legal(self):
        return [*(self.is_legal(action) for action in range(81)), True]

    def planes(self):
        shown = [*reversed(self.positions), *[[-1] * 81] * self.history][: self.history]
        planes = [[owner == who for owner in cells] for cells in shown for who in (self.player, 1 - self.player)]
        return [*planes, [self.player == 1] * 81]

    def play(self, action):
        self.ko = None
        if action == 81:
            self.num_passes += 1
        else:
            self.num_passes = 0
            taken = self.taken(action)
            if len(taken) == 1 and all(
                self.cells[cell] == 1 - self.player for cell in self.beside(action, self.directions)
            ):
                self.ko = min(taken)
            for cell in taken:
                self.cells[cell] = -1
            self.cells[action] = self.player
            self.has_repeated = self.cells in self.positions
        self.positions.append(list(self.cells))
        if self.has_repeated:
            self.end(1 - self.player)
        elif self.num_passes == 2 or len(self.positions) == self.most_plies:
            black, white = self.area(0), self.area(1)
            self.end(0 if black - self.komi > white else 1)
        self.player = 1 - self.player

    def area(self, player):
        """Stones, and free regions that touch no stone of the other player; on an empty board both own everything."""
        total = self.cells.count(player)
        for cell in range(81):
            if self.cells[cell] == -1:
                region = self.group(cell, self.directions)
                around = {self.cells[other] for free in region for other in self.beside(free, self.directions)}
                total += 1 - player not in around
        return total


PLAIN_GAMES = {
    "tic_tac_toe": PlainTicTacToe,
    "connect_four": PlainConnectFour,
    "othello": PlainOthello,
    "hex_11x11": PlainHex,
    "go_9x9": PlainGo,
}
