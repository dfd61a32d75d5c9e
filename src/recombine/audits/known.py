"""What is known of how well coverage and novelty foretell failure; the audit quotes it."""

KNOWN = (
    "How well coverage, connection and novelty foretell failure, and whether they say more than "
    "rarity does: the study `foretold` asks it of networks trained here, and is not recorded yet."
)
