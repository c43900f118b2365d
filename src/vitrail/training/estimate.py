"""About how long a run will take, measured before it starts."""

import time

import torch

from vitrail.config import RunConfig
from vitrail.runtime.out_of_memory import is_out_of_memory, release_memory
from vitrail.runtime.threads import is_tiny, one_thread
from vitrail.training.session import Session

# Few are enough where each takes its time; a GPU with few images at a time waits for launches and not for arithmetic.
_IMAGES = 16
_IMAGES_ON_A_GPU = 256
_ROUNDS = 2
# Seconds that a try should take at most: people wait for it and see nothing.
_LONGEST_TRY = 4.0


def seconds_per_image(session: Session) -> float:
    """Time of forward and backward for one image: the best of a few tries on noise, with nothing changed by them."""
    try:
        return seconds_of(session.model, session.config, session.progress.micro_batch, session.device)
    finally:
        session.train_mode()
        session.step.clear()


def seconds_of(model: torch.nn.Module, config: RunConfig, micro_batch: int, device: torch.device) -> float:
    """The same of a network, which is left with gradients.

    On a CPU the first try is of one image, which says how many the others may have; after one that took long there is
    one other.
    The network is in evaluation mode, so that no statistics move; compiled code will be faster than this.
    """
    on_gpu = device.type == "cuda"
    most = _IMAGES_ON_A_GPU if on_gpu else _IMAGES
    generator = torch.Generator(device).manual_seed(0)
    shape = (min(most, micro_batch), config.model.channels, *config.model.image_size)
    images = torch.randn(shape, generator=generator, device=device)
    autocast = torch.autocast(device.type, torch.bfloat16, enabled=config.train.precision == "bfloat16")

    def tried(size: int) -> float:
        begin = time.perf_counter()
        with autocast:
            loss = model(images[:size]).float().square().mean()
        loss.backward()
        if on_gpu:
            torch.cuda.synchronize(device)
        return (time.perf_counter() - begin) / size

    model.eval()
    with one_thread(is_tiny(model, device)):
        few = len(images) if on_gpu else 1
        # It also pays for whatever is loaded and made only once, which on a busy machine is most of it.
        first = tried(few)
        size = len(images) if on_gpu else min(len(images), max(1, int(_LONGEST_TRY / first)))
        return min(first, *(tried(size) for _ in range(_ROUNDS if first * few <= _LONGEST_TRY else 1)))


def try_seconds_per_image(session: Session) -> float | None:
    """The same, or none where memory is too short to try, or other processes would have to try at the same moment."""
    if not session.spread.has_all:
        return None
    try:
        return seconds_per_image(session)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        release_memory()
        return None


def seconds_left(session: Session) -> float | None:
    """Seconds until the last step, without evaluations and waiting for data; none where it could not be tried."""
    each = try_seconds_per_image(session)
    if each is None:
        return None
    steps = session.progress.steps - session.progress.step
    left = steps * session.config.train.batch_size * each
    limit = session.config.train.time_limit
    return left if limit is None else min(left, 60 * limit)
