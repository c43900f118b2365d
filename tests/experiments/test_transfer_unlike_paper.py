"""What is told about a fine-tuning that is not the paper's."""

from dataclasses import replace

from vitrail.config import DataConfig, RunConfig, VitConfig, preset
from vitrail.experiments.finetune import Plan, Splits, make_plan
from vitrail.experiments.transfer_paper import unlike_paper
from vitrail.recipes import recipe
from vitrail.zoo import zoo_row


def papers_plan(data: str = "cifar10", splits: Splits | None = None) -> Plan:
    """Table 4 to the letter."""
    chosen = recipe(f"finetune-{data}")
    model = zoo_row("vit-b16").config
    assert isinstance(model, VitConfig)
    config = RunConfig(
        recipe=chosen.name,
        model=replace(model, image_size=(384, 384)),
        preprocessing=preset("google"),
        data=DataConfig(data=data, held_out=chosen.held_out),
        augment=chosen.augment,
        optim=chosen.optim,
        schedule=chosen.schedule,
        train=chosen.train,
    )
    found = splits or Splits(val=False, test=True)
    return make_plan(config, rates=chosen.learning_rates, seeds=3, splits=found)


def test_the_papers_own_protocol_differs_in_nothing() -> None:
    for data in ("cifar10", "cifar100", "oxford-pets", "flowers102"):
        assert unlike_paper(papers_plan(data)) == ()
    # What everyone calls ImageNet's test set is its val split.
    assert unlike_paper(papers_plan("imagenet", Splits(val=True, test=False))) == ()


def test_every_setting_that_is_shorter_or_other_is_named() -> None:
    plan = papers_plan()
    config = plan.config
    shorter = replace(
        plan,
        rates=(0.01,),
        seeds=(0,),
        config=replace(
            config,
            model=replace(config.model, image_size=(224, 224)),
            data=replace(config.data, split="train[:100]"),
            augment=replace(config.augment, resize=261),
            optim=replace(config.optim, freeze=2),
            # The same share of the run, as `vitrail finetune` makes it.
            schedule=replace(config.schedule, warmup_steps=0, warmup_share=0.05),
            train=replace(config.train, steps=1_000, batch_size=64),
        ),
    )
    assert unlike_paper(shorter) == (
        "1,000 steps instead of 10,000",
        "224 px instead of 384",
        "1 seed instead of 3",
        "learning rate 0.01 instead of 0.001, 0.003, 0.01, 0.03",
        "batch 64 instead of 512",
        "freeze 2 instead of 0",
        "split train[:100] instead of train",
    )


def test_epochs_time_and_where_it_was_measured() -> None:
    plan = papers_plan()
    train = plan.config.train
    epochs = replace(plan, config=replace(plan.config, train=replace(train, steps=None, epochs=2)))
    assert unlike_paper(epochs) == ("2 epochs instead of 10,000 steps",)
    timed = replace(plan, config=replace(plan.config, train=replace(train, time_limit=1.5)))
    assert unlike_paper(timed) == ("at most 1.5 minutes a run instead of 10,000 steps",)
    assert "measured on sweep images, not on test images" in unlike_paper(replace(plan, measure="sweep"))


def test_data_of_ones_own_is_compared_with_nothing() -> None:
    plan = papers_plan()
    own = replace(plan, seeds=(0,), config=replace(plan.config, data=replace(plan.config.data, data="/home/me/photos")))
    assert unlike_paper(own) == ()


def test_regularisation_and_preparation_are_named_too() -> None:
    plan = papers_plan()
    config = plan.config
    model = replace(config.model, dropout=0.5, stochastic_depth=0.3)
    changed = replace(
        config,
        model=model,
        preprocessing=preset("augreg"),
        train=replace(config.train, label_smoothing=0.2, average=0.999),
        data=replace(config.data, skip_bad=True),
    )
    assert set(unlike_paper(replace(plan, config=changed))) == {
        "label smoothing 0.2 instead of 0.0",
        "average 0.999 instead of 0.0",
        "dropout 0.5 instead of 0.0",
        "stochastic depth 0.3 instead of 0.0",
        f"crop of test images {preset('augreg').crop} instead of {preset('google').crop}",
        "bad files skipped True instead of False",
    }
