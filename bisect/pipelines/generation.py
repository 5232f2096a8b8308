"""The pipeline of a model that generates text: everything from its weights to the last of N steps.

The table is at the end; before it are steps 10 to 13, a few tokens to see that the model generates
at all and how fast, and step 16: N inference steps, alone or inside of a loop of the user's own.

With `--use step=my.module:function` the function is called once a step. What it does before it asks
for an answer is its observation, the answers are its decision, what it does after them its action.

While a generation takes long, a thread says so, for the one that generates is busy with it. It is a
word for people: whether anything moves is judged from outside, by the watch.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ..base.checkpoints import Phase
from ..base.lazy_dataclass import dataclass
from ..base.words import format_count, format_duration
from ..rank.walk import load_function
from . import forecast, generation_plan, loading_steps
from .forecast import describe_slow_generation, forecast_step, format_memory_in_use
from .generation_plan import DTYPES, sampling_options
from .model_steps import TEXT, find_input_device
from .shared_steps import PhasesInOrder, add_max_memory, make_pipeline, row

if TYPE_CHECKING:
    from ..rank.walk import Context


AGAIN = 2.5  # times as long: 2 minutes, then 5


@contextmanager
def warn_while_slow(seconds: float, warn: Callable[[float], None]) -> Iterator[None]:
    """Call warn(seconds so far) from a thread after so long, and after AGAIN times as long."""
    done = threading.Event()

    def wait() -> None:
        if done.wait(seconds):
            return
        warn(seconds)
        if not done.wait(seconds * (AGAIN - 1)):
            warn(seconds * AGAIN)

    thread = threading.Thread(target=wait, name="overlong", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


class TokenCounter:
    """Asked by generate() after each token whether to stop: counts and times it, never stops."""

    def __init__(self, tell: Callable[[int], None]) -> None:
        """Call tell(tokens so far) after each token."""
        self.count = 0
        self._tell = tell
        self._at: list[float] = []

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        """Return for each sequence that it goes on."""
        import torch

        self.count += 1
        self._at.append(time.monotonic())
        self._tell(self.count)
        return torch.zeros(input_ids.shape[0], dtype=torch.bool, device=input_ids.device)

    @property
    def token_seconds(self) -> float:
        """How long a token takes once the prompt is read: the median, for the first ones also
        start what is started once. Raises StatisticsError below two tokens.
        """
        return statistics.median(later - earlier for earlier, later in pairwise(self._at))


_TEST_PROMPT = "The first rank arrives at the door"
_TEST_TOKENS = 5


@dataclass(frozen=True)
class ShortGeneration:
    """What a short generation showed."""

    shape: tuple[int, ...]
    token_seconds: float


def test_input(context: Context) -> Any:
    """Return a short prompt as tensors."""
    context.about_to("transformers.PreTrainedTokenizerBase.__call__", " with a short prompt")
    made = context.products["tokenizer"](_TEST_PROMPT, return_tensors="pt")
    context.say(f"Test input: {made['input_ids'].shape[-1]} tokens")
    return made


def first_device(context: Context) -> Any:
    """Return the device that inputs go to."""
    model, torch = context.products["weights"], context.imports("torch")
    first, device = next(model.parameters()).device, find_input_device(model, torch)
    waits = f"; it is offloaded and comes to {device} when it is its turn" * (first != device)
    context.say(f"First parameter's device: {first}{waits}")
    return device


def input_moved(context: Context) -> Any:
    """Return the short prompt on that device."""
    device = context.products["first_device"]
    context.about_to("transformers.BatchEncoding.to", f" {device}")
    return context.products["test_input"].to(device)


def test_generation(context: Context) -> ShortGeneration:
    """Generate a few tokens, and say how many came how fast."""
    model, given = context.products["weights"], context.products["input_moved"]
    counter = TokenCounter(context.pulse)
    links = context.products["placement"].links
    what = f": {forecast_step(links, _TEST_TOKENS, None)}" if links else ""
    context.about_to(
        f"transformers.{type(model).__name__}.generate",
        f" with max_new_tokens={_TEST_TOKENS}{what}",
    )
    began = time.monotonic()
    output = model.generate(
        **given,
        max_new_tokens=_TEST_TOKENS,
        min_new_tokens=_TEST_TOKENS,
        pad_token_id=context.products["pad_token"],
        do_sample=False,
        stopping_criteria=[counter],
    )
    seconds = time.monotonic() - began
    context.say(
        f"Test generation: output of shape {list(output.shape)} in {format_duration(seconds)}, "
        f"{counter.token_seconds:.3f} s a token once the prompt was read"
    )
    return ShortGeneration(tuple(output.shape), counter.token_seconds)


@dataclass(frozen=True)
class GeneratedText:
    text: str
    tokens: int  # new ones
    seconds: float  # of all of it


def generate_answer(
    prompt: str, step: int, context: Context, phase: Callable[[str], None]
) -> GeneratedText:
    """Return what the model answers; `phase` is told which part begins."""
    began = time.monotonic()
    phase("prompt")
    say = _say_of_step(step, context)
    say(f"prompt of {format_count(len(prompt), 'character')}")
    given = _tokenize_prompt(prompt, say, context)
    for line in format_memory_in_use(context):
        say(f"before generation: {line}")
    phase("generate")
    output = _generate_tokens(given, step, context)
    for line in format_memory_in_use(context):
        say(f"after generation: {line}")
    phase("decode")
    at = time.monotonic()
    tokenizer, prompt_tokens = context.products["tokenizer"], given["input_ids"].shape[-1]
    context.about_to("transformers.PreTrainedTokenizerBase.decode")
    text = tokenizer.decode(output[0][prompt_tokens:], skip_special_tokens=True)
    seconds = time.monotonic() - began
    say(
        f"decoded in {format_duration(time.monotonic() - at)}; response of "
        f"{format_count(len(text), 'character')}; total {format_duration(seconds)}"
    )
    return GeneratedText(text, output.shape[-1] - prompt_tokens, seconds)


def _say_of_step(step: int, context: Context) -> Callable[[str], None]:
    return lambda text: context.say(f"Step {step}: {text}")


def _tokenize_prompt(prompt: str, say: Callable[[str], None], context: Context) -> Any:
    """Return the prompt as tensors where the model wants them."""
    args, tokenizer = context.args, context.products["tokenizer"]
    device, limit = context.products["first_device"], context.products["plan"].prompt_tokens
    at = time.monotonic()
    context.about_to("transformers.PreTrainedTokenizerBase.__call__", " with the prompt")
    given = tokenizer(
        [prompt] * args.batch_size, return_tensors="pt", truncation=True, max_length=limit
    )
    tokens = given["input_ids"].shape[-1]
    cut = f", cut at {limit}" * (tokens == limit)
    say(
        f"tokenised in {format_duration(time.monotonic() - at)}: "
        f"{format_count(tokens, 'token')}{cut}"
    )
    at = time.monotonic()
    context.about_to("transformers.BatchEncoding.to", f" {device}")
    given = given.to(device)
    say(f"inputs on {device} ({format_duration(time.monotonic() - at)})")
    return given


def _generate_tokens(given: Any, step: int, context: Context) -> Any:
    """Return what generate() returns: prompts and answers."""
    args, products = context.args, context.products
    model, say, wanted = (
        products["weights"],
        _say_of_step(step, context),
        products["plan"].new_tokens,
    )
    counter = TokenCounter(context.pulse)
    links, token_seconds = products["placement"].links, products["test_generation"].token_seconds
    what = forecast_step(links, wanted, token_seconds)
    name = f"transformers.{type(model).__name__}.generate"
    context.about_to(name, f" with max_new_tokens={wanted}: {what}")
    began = time.monotonic()

    def warn(seconds: float) -> None:
        words = describe_slow_generation(seconds, counter.count, wanted, links)
        context.remark(f"Step {step}: {words}")

    with warn_while_slow(args.slow_generation, warn):
        output = model.generate(
            **given,
            max_new_tokens=wanted,
            pad_token_id=products["pad_token"],
            stopping_criteria=[counter],
            **sampling_options(context),
        )
    seconds = time.monotonic() - began
    new = output.shape[-1] - given["input_ids"].shape[-1]
    say(
        f"generated {format_count(new, 'token')} in {format_duration(seconds)}, "
        f"{new / seconds:.1f} tokens a second, output of shape {list(output.shape)}"
    )
    return output


STEP = "step"  # of --use
_PROMPT_CHARACTERS = 1200  # characters of our own page that are a prompt


@dataclass(frozen=True)
class Given:
    """What a step of the user's own gets."""

    number: int  # from 1
    generate: Callable[[str], str]  # the model's answer to a prompt
    args: Any  # the parsed arguments
    context: Any  # what a pipeline's own step gets: say(text), about_to(call)
    products: Mapping[str, Any]  # of the steps before, by name: "tokenizer", "weights"


def steps(context: Context) -> list[GeneratedText]:
    """Do all steps, and return the answers."""
    place = context.args.use.get(STEP)
    function = load_function(place) if place else None
    answers: list[GeneratedText] = []
    phase = PhasesInOrder(context).begin
    for number in range(1, context.args.steps + 1):
        began = time.monotonic()
        if number > 1:
            phase("steady")
        if function is None:
            answers.append(generate_answer(_read_prompt(context), number, context, phase))
        else:
            answers += _do_user_step(function, place, number, context, phase)
        took = format_duration(time.monotonic() - began)
        context.say(f"Step {number} of {context.args.steps} done in {took}")
    return answers


def _do_user_step(
    function: Callable[[Given], object],
    place: str,
    number: int,
    context: Context,
    phase: Callable[[str], None],
) -> list[GeneratedText]:
    """Do one step of the user's loop; return what the model answered in it."""
    answers: list[GeneratedText] = []
    at = time.monotonic()

    def say_part(part: str) -> None:
        nonlocal at
        now = time.monotonic()
        context.say(f"Step {number}: {part} ({format_duration(now - at)})")
        at = now

    def generate(prompt: str) -> str:
        say_part("observation received" if not answers else "between two answers")
        answers.append(generate_answer(prompt, number, context, phase))
        say_part("decision received")
        phase("action")
        return answers[-1].text

    phase("observation")
    context.about_to(place.replace(":", "."), f" for step {number}")
    function(Given(number, generate, context.args, context, context.products))
    say_part("action executed" if answers else "nothing was generated")
    return answers


def _read_prompt(context: Context) -> str:
    """Return the text of --prompt-file, else the beginning of a page that ships."""
    named = context.args.prompt_file
    with open(named or TEXT, encoding="utf-8", errors="replace") as file:
        return file.read(-1 if named else _PROMPT_CHARACTERS)


# Deadlines in seconds: half a minute for what is local, minutes for what downloads or reads
# gigabytes; two minutes for what generates, for no loop of hundreds of steps can wait longer.
_LOADING = (
    Phase("files", "hub", 900),
    Phase("shards", "model", 600),
    Phase("after_shards", "model", 120),
)
_OF_A_STEP = (
    Phase("observation", "loop", 120),
    Phase("prompt", "generation", 60),
    Phase("generate", "generation", 120),
    Phase("decode", "generation", 60),
    Phase("action", "loop", 120),
    Phase("steady", "generation", None),
)


def _add_generation_arguments(group: argparse._ActionsContainer) -> None:
    from ..base.argument_types import choice, count, positive

    add = group.add_argument
    add("--model", metavar="NAME_OR_PATH", help="through AutoModelForCausalLM (a small one)")
    add("--tokenizer", metavar="NAME_OR_PATH", help="through AutoTokenizer (the model's)")
    add(
        "--local-files-only",
        action="store_true",
        help="take tokenizer and weights from the hub's cache alone, as from_pretrained does with "
        "local_files_only=True",
    )
    add("--dtype", metavar="|".join(DTYPES), type=choice("--dtype", DTYPES), default="auto",
        help="of the weights; auto: as they are saved (auto)")  # fmt: skip
    add_max_memory(group, "20GB")
    add("--offload-folder", metavar="DIR", help="for what goes to the disk (a temporary one)")
    add("--steps", metavar="N", type=count("--steps", 1), default=2, help="inference steps (2)")
    add("--batch-size", metavar="N", type=count("--batch-size", 1), default=1,
        help="prompts a step, all the same (1)")  # fmt: skip
    add("--prompt-file", metavar="FILE", help="text to go on from (a page that ships)")
    add(
        "--slow-generation",
        metavar="SECONDS",
        type=positive("--slow-generation"),
        default=120.0,
        help="warn of a generation that takes longer while it runs, and once more after 2.5 times "
        "as long (120)",
    )


PIPELINE = make_pipeline(
    "generation",
    (
        row("arguments", "Args parsed", "arguments", 30, generation_plan.arguments),
        row("tokenizer", "Tokenizer loaded", "hub", 300, generation_plan.tokenizer),
        row("plan", "Loading planned", "hub", 300, generation_plan.plan),
        row("weights", "Weights loaded", "model", 1800, loading_steps.weights, phases=_LOADING),
        row("placement", "Device map known", "model", 60, loading_steps.placement),
        row("cache_cleared", "Cache cleared", "accelerator", 60, forecast.clear_caches),
        row("generation_config", "Generation config set", "hub", 60,
            generation_plan.generation_config),
        row("pad_token", "Pad token set", "generation", 30, generation_plan.pad_token),
        row("test_input", "Test input made", "generation", 60, test_input),
        row("first_device", "First parameter's device found", "model", 30, first_device),
        row("input_moved", "Test input moved", "accelerator", 60, input_moved),
        row("test_generation", "Test generation done", "generation", 120, test_generation),
        row("cleared_again", "Cache cleared again", "accelerator", 60, forecast.clear_caches),
        row("memory", "Memory known", "accelerator", 120, forecast.memory),
        row("steps", "Inference steps done", "generation", 600, steps, phases=_OF_A_STEP),
    ),
    _add_generation_arguments,
    shows_itself="decode",
    aliases=(("model", "weights"),),
    called=("step",),
)  # fmt: skip
