"""What Alembic executes to run migrations: it takes the connection that `transom.storage.migrations.run` hands over."""

from alembic import context

from transom.storage.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
