"""Adds to a request what its client calls the turn, so that a turn sent again is known; older programs ignore it."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    op.add_column("requests", sa.Column("turn", sa.Text))
