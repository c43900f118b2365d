"""Who takes part for one model: ours, and every peer that is here, with ours shown to be each peer's function."""

import copy
from dataclasses import dataclass

from agreement import Agreement, check_agreement, with_weights_of
from peers import OURS, PEERS, comparable, randomise
from torch import nn

from vitrail.models import create_model
from vitrail.weights.library import TIMM
from vitrail.zoo import zoo_row

AGAIN = f"{OURS} (again)"


@dataclass(frozen=True, kw_only=True)
class Contenders:
    """The networks of one model, how ours agrees with them, and which peers have none and why."""

    networks: dict[str, nn.Module]
    agreements: list[Agreement]
    left_out: dict[str, str]


def build_contenders(model: str, peers: list[str], *, again: bool, seed: int) -> Contenders:
    """Each peer's network, and ours with the weights of the first peer that we read, compared with all of them.

    `again` adds a second copy of ours: how far the two differ is noise.
    """
    config = comparable(model, zoo_row(model).config)
    networks: dict[str, nn.Module] = {}
    agreements: list[Agreement] = []
    left_out: dict[str, str] = {}
    ours: nn.Module | None = None
    for peer in (PEERS[name] for name in peers):
        reason = peer.why_not(config)
        if reason:
            left_out[peer.name] = reason
            print(f"{model}: {peer.name} is left out: {reason}.", flush=True)
            continue
        networks[peer.name] = theirs = randomise(peer.build(config), seed)
        if not peer.readable:
            print(f"{model}: {peer.name} computes another function of the same size: timed, not compared.", flush=True)
            continue
        candidate = with_weights_of(theirs, config)
        found = check_agreement(model, peer, candidate, theirs, config)
        agreements.append(found)
        print(
            f"{model}: {peer.name} and ours: logits within {found.logits:.1e}, gradient {found.gradient:.1e}",
            flush=True,
        )
        ours = ours or candidate
    # With none to load from, ours has at least the numerics of the others.
    ours = ours or randomise(create_model(TIMM.reads_as(config)), seed)
    copies = {AGAIN: copy.deepcopy(ours)} if again else {}
    return Contenders(networks={OURS: ours, **copies, **networks}, agreements=agreements, left_out=left_out)
