"""Result tables: JSON in one form, the views that show it, Markdown and plots made from it."""
