"""Rows whose output has a grammar: their logits are masked, and their tokens followed.

A mask comes as packed bits from the host: it is spread there for logits on the CPU, and on the
device else, so that a step moves a bit for each token of the vocabulary rather than a byte.
"""

from collections.abc import Sequence

import numpy as np
import torch

from quire_engine.execution.grammars_by_row import GrammarsByRow


class GrammarRows(GrammarsByRow):
    """Masks logits of rows with a grammar."""

    def apply(
        self, logits: torch.Tensor, rows: Sequence[int], positions: Sequence[int]
    ) -> torch.Tensor:
        """Return the logits with -inf for what may not come; those given may be changed.

        Parameters
        ----------
        logits
            [len(rows), vocab], any floating type and device.
        positions
            Position of the token to be chosen in each row.

        Returns
        -------
        torch.Tensor
            [len(rows), vocab], float32.
        """
        logits = logits.float()
        indices, masks = [], []
        for index, (row, position) in enumerate(zip(rows, positions, strict=True)):
            found = self._rows.get(row)
            if found is not None:
                grammar, num_prompt_tokens = found
                grammar.go_back(position - num_prompt_tokens)
                indices.append(index)
                masks.append(grammar.mask)
        mask_logits(logits, indices, np.stack(masks))
        return logits

    def advance(self, rows: Sequence[int], tokens: Sequence[int]) -> tuple[int, ...]:
        """Take the chosen tokens.

        Returns
        -------
        tuple
            Indices of rows whose token is none that may come: no permitted one had a finite logit.
        """
        impossible = []
        for index, (row, token) in enumerate(zip(rows, tokens, strict=True)):
            found = self._rows.get(row)
            if found is not None and not found[0].advance(token):
                impossible.append(index)
        return tuple(impossible)


def mask_logits(logits: torch.Tensor, indices: Sequence[int], masks: np.ndarray) -> None:
    """Set to -inf, in place, what the masks of some rows leave out.

    Parameters
    ----------
    logits
        [num_rows, vocab], float32.
    masks
        [len(indices), ceil(vocab / 32)], int32.
    """
    vocab_size = logits.shape[-1]
    if logits.device.type == "cpu":
        # by numpy: torch would wake its threads for every row, which then spin for the next
        left_out = ~masks.view(np.uint8)
        spread = np.unpackbits(left_out, axis=1, count=vocab_size, bitorder="little")
        values = logits.numpy()
        for index, mask in zip(indices, spread.view(np.bool_), strict=True):
            np.copyto(values[index], -np.inf, where=mask)
        return
    places = torch.tensor(indices, device=logits.device)
    permitted = spread_bits(torch.from_numpy(masks).to(logits.device), vocab_size)
    logits[places] = logits[places].masked_fill(~permitted, -torch.inf)


def spread_bits(masks: torch.Tensor, vocab_size: int) -> torch.Tensor:
    """Return packed bits as booleans: [num_rows, vocab] of [num_rows, ceil(vocab / 32)] int32."""
    shifts = torch.arange(32, dtype=torch.int32, device=masks.device)
    bits = (masks[:, :, None] >> shifts) & 1
    return bits.flatten(1)[:, :vocab_size].bool()
