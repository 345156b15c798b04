"""What people see: tables on a terminal, figures, the HTML report."""
