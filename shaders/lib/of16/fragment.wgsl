// 16x16 cooperative matrices: W and x in f16, y in f32.

enable f16;
enable wgpu_cooperative_matrix;

const SIDE = 16u;

alias FragmentW = coop_mat16x16<f16, A>;
alias FragmentX = coop_mat16x16<f16, B>;
alias FragmentY = coop_mat16x16<f32, C>;
