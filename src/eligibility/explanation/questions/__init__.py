"""Questions that people really asked, each with a worked answer in its own numbers."""

from __future__ import annotations

from dataclasses import replace

from eligibility.errors import InvalidValueError
from eligibility.explanation.derivation import Explanation
from eligibility.explanation.questions import gradients, policies, surrogates
from eligibility.explanation.questions.question import Question

QUESTIONS = (
    Question(1, "Why -0.69 for what was not sampled?",
             "discuss.pytorch.org/t/117395 and pytorch#61727", policies.not_drawn),
    Question(2, "Why does my KL gradient differ from the hand-written one?",
             "pytorch#30090", policies.hand_written_kl),
    Question(3, "Does detaching the normaliser change the gradient?",
             "pytorch#62473", policies.detached_normaliser),
    Question(4, "Are logits log-probabilities?",
             "pytorch#50378", policies.logits_are_not_log_probs),
    Question(5, "Why is the entropy, or its gradient, NaN with -inf logits?",
             "pytorch#40553 and trl#7221", policies.entropy_of_masked_logits),
    Question(6, "Why is the gradient exactly 0, and my agent repeats one action?",
             "many threads on saturated policies", policies.saturation),
    Question(7, "Why does accumulating the gradient over all actions give 0?",
             "pytorch#75948", gradients.all_actions),
    Question(8, "Which distributions have a gradient through log_prob, which through rsample?",
             "pytorch#152703", gradients.two_ways),
    Question(9, "Why \"trying to backward through the graph a second time\"?",
             "pytorch#11192", gradients.second_backward),
    Question(10, "The loss is 0, or negative, or goes up: what does its value mean?",
             "many threads on REINFORCE", gradients.value_of_the_loss),
    Question(11, "The loss of GRPO is 0: why is there a gradient?",
             "huggingface/open-r1#239 and huggingface/trl#2703", surrogates.loss_of_zero),
    Question(12, "The ratio is always 1: is that a bug?",
             "tensorforce#312 and nikhilbarhate99/PPO-PyTorch#12", surrogates.ratio_of_one),
    Question(13, "k1, k2, k3: which divergence does each descend, in the loss and in the reward?",
             "huggingface/trl#2854 and #4967", surrogates.three_estimators),
    Question(14, "What does detach do in CISPO, and in the ratio?",
             "areal-project/AReaL#1421 and THUDM/slime#2067", surrogates.detached_weight),
    Question(15, "Which tokens does the clip silence?",
             "openai/baselines#92 and natolambert/rlhf-book#290", surrogates.silenced_tokens),
    Question(16, "What does dividing by the length do?",
             "sail-sg/understand-r1-zero#10 and #11, huggingface/trl#3138",
             surrogates.divided_by_length),
    Question(17, "(G−1)/G and leave-one-out: why are they the same?",
             "areal-project/AReaL#354 and redai-studio/Relax#174", surrogates.leave_one_out),
)  # fmt: skip


def answer_question(number: int) -> Explanation:
    """The worked answer to question ``number``."""
    question = next((item for item in QUESTIONS if item.number == number), None)
    if question is None:
        raise InvalidValueError(
            "`--question`",
            str(number),
            f"a number from 1 to {len(QUESTIONS)}",
            "`eligibility explain --question` lists them",
        )
    answered = question.answer(question)
    expected = tuple(  # an answer does not point to itself
        replace(item, question=0) if item.question == number else item for item in answered.expected
    )
    return replace(answered, expected=expected)
